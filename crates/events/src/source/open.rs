//! Opens an event source: the requested one, or the best that the machine allows.

use std::sync::Once;

use super::bpf::BpfSource;
use super::event_source::EventSource;
use super::fallback::Fallback;
use super::kind::Kind;
use super::off::Off;
use super::perf::PerfSource;
use super::watch::WatchSource;
use crate::report::unavailable::Unavailable;

/// Probes all sources, best first: `None`, or the reason why the source is unavailable. Opens each
/// source once, which takes some milliseconds.
#[must_use]
pub fn probe() -> [(Kind, Option<Unavailable>); 4] {
    Kind::ALL.map(|kind| (kind, open_one(kind, 1).err()))
}

/// Returns a line about the source of `kind` on this machine, for `kumi doctor`. Opens the source
/// once.
#[must_use]
pub fn note(kind: Kind) -> Option<String> {
    open_one(kind, 1).ok()?.note()
}

/// Opens the requested source, or the best one that the machine allows.
///
/// Prints the reason if the settings request a way of `bpf` that the machine refuses.
///
/// # Errors
/// The reason why the requested source is unavailable, and the setting that would enable it.
pub fn open(wanted: Option<Kind>, slots: u32) -> Result<Box<dyn EventSource>, Unavailable> {
    match wanted {
        Some(kind) => open_one(kind, slots),
        None => {
            let open = |kind| match open_one(kind, slots) {
                Ok(source) => Some(source),
                Err(refused) => {
                    if kind == Kind::Bpf && kumihimo_config::get().lab.bpf.is_some() {
                        report_once(&format!("event source bpf is not used: {refused}"));
                    }
                    None
                }
            };
            Kind::ALL.into_iter().find_map(open).ok_or_else(|| {
                Unavailable::new("no event source", "report a bug: `off` has no requirements")
            })
        }
    }
}

/// Prints why the source is not the requested one, or reports less. Prints once in a process.
pub(crate) fn report_once(why: &str) {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| eprintln!("kumihimo: {why}"));
}

/// Opens a source of `kind`, for kernel threads with slots 1 to `slots`.
///
/// # Errors
/// The reason why the machine refuses the source.
pub fn open_one(kind: Kind, slots: u32) -> Result<Box<dyn EventSource>, Unavailable> {
    if !kumihimo_arch::HAS_MICROPROCESSES && kind != Kind::Off {
        let why = kumihimo_arch::tls::get().why();
        return Err(Unavailable::new(
            format!("events are not used: {why}"),
            "x86_64 or aarch64 Linux with glibc",
        ));
    }
    Ok(match kind {
        Kind::Bpf => Box::new(Fallback::new(Box::new(BpfSource::open(slots)?), slots, open_one)),
        Kind::Perf => Box::new(PerfSource::open()?),
        Kind::Watch => Box::new(WatchSource::open()?),
        Kind::Off => Box::new(Off),
    })
}
