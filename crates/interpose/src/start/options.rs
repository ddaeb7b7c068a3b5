//! What `kumi run` was asked for: the variable `KUMIHIMO_RUN`, as key=value pairs with commas.

use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::OnceLock;

use crate::start::report;

/// Name of the variable.
const NAME: &str = "KUMIHIMO_RUN";
/// The names of the two libraries, in LD_PRELOAD.
const LIBRARIES: [&str; 2] = ["libkumihimo_preload.so", "libkumihimo_run.so"];

/// The options. Without the variable (the libraries were preloaded by hand): the defaults.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// `policy=round-robin` instead of feedback.
    pub(crate) round_robin: bool,
    /// `strict=on`: the process ends where its threads cannot be microprocesses, and says at its
    /// end how many were.
    pub(crate) strict: bool,
    /// `children=off`: programs that this one executes are left alone.
    without_children: bool,
    /// `report=FILE`, the last pair: the file with a line for each program.
    report: Option<PathBuf>,
}

impl Options {
    /// Whether the process prints its numbers of threads at its exit: with `strict`, unless they
    /// are in a report.
    pub(crate) fn prints_counts(&self) -> bool {
        self.strict && self.report.is_none()
    }
}

/// Returns the options.
pub(crate) fn get() -> &'static Options {
    static OPTIONS: OnceLock<Options> = OnceLock::new();
    OPTIONS.get_or_init(|| {
        let value = env::var_os(NAME).unwrap_or_default();
        let (value, report) = split(value.as_bytes());
        let has = |pair: &str| value.split(|byte| *byte == b',').any(|own| own == pair.as_bytes());
        Options {
            round_robin: has("policy=round-robin"),
            strict: has("strict=on"),
            without_children: has("children=off"),
            report: report.map(|path| PathBuf::from(OsStr::from_bytes(path))),
        }
    })
}

/// Separates the pairs from the file of the report, whose name may contain commas.
fn split(value: &[u8]) -> (&[u8], Option<&[u8]>) {
    const REPORT: &[u8] = b",report=";
    match value.windows(REPORT.len()).position(|part| part == REPORT) {
        Some(at) => (&value[..at], Some(&value[at + REPORT.len()..])),
        None => (value, None),
    }
}

/// The heap of the preloaded library: its lock is held across a fork.
#[derive(Clone, Copy, Debug)]
pub struct Heap {
    /// Acquires the lock.
    pub hold: fn(),
    /// Releases it, in the parent or in the child.
    pub release: fn(),
}

static HEAP: OnceLock<Heap> = OnceLock::new();

/// The heap of the preloaded library, if this is one.
pub(crate) fn heap() -> Option<&'static Heap> {
    HEAP.get()
}

/// Begins in a preloaded library. Called before the program's `main`.
pub fn begin_preloaded(heap: Heap) {
    let _ = HEAP.set(heap);
    crate::real::find_all();
    if let Some(path) = &get().report {
        report::begin(path);
    }
    if get().without_children {
        forget_libraries();
    }
}

/// Takes the libraries out of the environment, which later programs inherit.
fn forget_libraries() {
    let Some(before) = env::var_os("LD_PRELOAD") else { return };
    let is_own = |name: &&[u8]| LIBRARIES.iter().any(|own| name.ends_with(own.as_bytes()));
    let names = before.as_bytes().split(|byte| b" :".contains(byte));
    let others: Vec<&[u8]> = names.filter(|name| !is_own(name)).collect();
    // SAFETY: the program's `main` and its threads have not begun. Constructors that change the
    // environment run in this thread.
    unsafe {
        if others.is_empty() {
            env::remove_var("LD_PRELOAD");
        } else {
            env::set_var("LD_PRELOAD", OsStr::from_bytes(&others.join(&b':')));
        }
        env::remove_var(NAME);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_the_report_may_contain_commas() {
        assert_eq!(split(b"strict=on"), (&b"strict=on"[..], None));
        assert_eq!(split(b"a=b,report=/x,y,report=z"), (&b"a=b"[..], Some(&b"/x,y,report=z"[..])));
    }
}
