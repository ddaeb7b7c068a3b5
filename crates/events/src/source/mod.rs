//! Where events come from: four sources behind one trait, and the choice among them.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::time::Duration;

use crate::handoff::page::Page;
use crate::report::unavailable::Unavailable;

mod bpf;
mod fallback;
mod off;
mod perf;
mod watch;

/// The kinds of event sources, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A BPF program at every context switch, and SIGTRAP on the way back.
    Bpf,
    /// perf's records of context switches: without privileges.
    Perf,
    /// A look at each virtual processor's kernel thread, now and then: where nothing is allowed.
    Watch,
    /// None: only what says so itself (`blocking`, our own I/O) gives its virtual processor away.
    Off,
}

impl Kind {
    /// All, best first.
    pub const ALL: [Kind; 4] = [Kind::Bpf, Kind::Perf, Kind::Watch, Kind::Off];

    /// As `KUMI_EVENTS` names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Bpf => "bpf",
            Kind::Perf => "perf",
            Kind::Watch => "watch",
            Kind::Off => "off",
        }
    }

    /// The reverse of [`name`](Kind::name).
    #[must_use]
    pub fn from_name(name: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What each source says of this machine, best first: none, or why it refuses. Opens each once:
/// some milliseconds.
#[must_use]
pub fn probe() -> [(Kind, Option<Unavailable>); 4] {
    Kind::ALL.map(|kind| (kind, open_one(kind, 1).err()))
}

/// Tells which kernel threads went to sleep in the kernel with a virtual processor, and, if it can,
/// when they are back.
///
/// Kernel threads that wait in the pool sleep in epoll_wait(2) on what the source registered;
/// whichever is woken asks [`drain`](EventSource::drain) and goes on with the virtual processor
/// itself: nobody stands between cause and successor.
pub trait EventSource: fmt::Debug + Send + Sync {
    /// Which one it is.
    fn kind(&self) -> Kind;

    /// The one that tells of those kernel threads to which the kernel refuses it, if there are any.
    fn fallback(&self) -> Option<Kind> {
        None
    }

    /// The memory for the slots, if it has to be the source's own.
    fn memory(&self) -> Option<(NonNull<u8>, usize)> {
        None
    }

    /// Registers what wakes the waiters: see epoll_ctl(2). The data is for the source to choose,
    /// below 2^32.
    ///
    /// # Errors
    /// What epoll_ctl says.
    fn register(&self, _epoll: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// The calling kernel thread begins, with slot `index`.
    ///
    /// # Errors
    /// What the kernel says: no descriptors, no memory. The kernel thread then cannot carry.
    fn attach(&self, _index: u32) -> io::Result<()> {
        Ok(())
    }

    /// The calling kernel thread ends.
    fn detach(&self, _index: u32) {}

    /// The calling kernel thread, with slot `index`, is about to carry a virtual processor, for the
    /// `time`th time.
    ///
    /// # Errors
    /// As [`attach`](EventSource::attach): then nobody is told of this kernel thread's sleeps. A
    /// source that [reports returns](EventSource::reports_returns) is asked in a signal handler
    /// too, and keeps to signal-safety(7).
    fn begin(&self, _index: u32, _time: u64, _epoll: BorrowedFd<'_>) -> io::Result<()> {
        Ok(())
    }

    /// The kernel thread of slot `index` no longer carries the one of that `time`. Called by
    /// itself, or by the thread that took it; then it may have another one by now.
    fn end(&self, _index: u32, _time: u64) {}

    /// The calling kernel thread, which carries nothing, will be without a virtual processor for
    /// long: it is to own no event until it [begins](EventSource::begin) again. Async-signal-safe.
    fn leave(&self, _index: u32) {}

    /// Whether it sleeps from its own free will from here, in the user scheduler: no news is
    /// wanted. By the carrier; cheap.
    fn rest(&self, _index: u32, _rests: bool) {}

    /// Drains the reports after a wake-up with `data`: calls `blocked` with the index of each slot
    /// whose kernel thread may sleep with its virtual processor. The claimer checks them. Any
    /// number of kernel threads may call it at a time.
    fn drain(&self, _data: u32, _page: &Page, _blocked: &mut dyn FnMut(u32)) {}

    /// Polls the carriers of a source that does not report by itself, and returns the time until
    /// the next poll. Called by one kernel thread at a time.
    fn poll(&self, _page: &Page, _blocked: &mut dyn FnMut(u32)) -> Option<Duration> {
        None
    }

    /// Whether [`poll`](EventSource::poll) must be called.
    fn needs_poll(&self) -> bool {
        false
    }

    /// Whether the source ever reports a block by itself, so that a spare must always wait.
    fn reports_blocks(&self) -> bool {
        true
    }

    /// Whether, for slot `index`, the kernel itself gives the virtual processor up while its kernel
    /// thread is off its core ([`crate::slot::LENT`]): what was not is not to be taken.
    fn lends(&self, _index: u32) -> bool {
        false
    }

    /// Whether, for slot `index` (0: for any that begins now), it also tells of the return, by
    /// SIGTRAP ([`crate::trap`]). There has to be a handler then, or it would end the process.
    fn reports_returns(&self, _index: u32) -> bool {
        false
    }
}

/// The source asked for, or the best one that the machine allows.
///
/// # Errors
/// The one asked for is refused: why, and what would enable it.
pub fn open(wanted: Option<Kind>, slots: u32) -> Result<Box<dyn EventSource>, Unavailable> {
    match wanted {
        Some(kind) => open_one(kind, slots),
        None => {
            Kind::ALL.into_iter().find_map(|kind| open_one(kind, slots).ok()).ok_or_else(|| {
                Unavailable::new("no event source", "this cannot be: `off` needs nothing")
            })
        }
    }
}

/// Opens one of `kind`, for kernel threads with slots 1 to `slots`.
///
/// # Errors
/// The machine refuses it.
pub fn open_one(kind: Kind, slots: u32) -> Result<Box<dyn EventSource>, Unavailable> {
    if !kumihimo_arch::HAS_MICROPROCESSES && kind != Kind::Off {
        let why = kumihimo_arch::tls::get().why();
        return Err(Unavailable::new(
            format!("no use for events: {why}"),
            "x86_64 Linux with glibc",
        ));
    }
    Ok(match kind {
        Kind::Bpf => {
            Box::new(fallback::Fallback::new(Box::new(bpf::BpfSource::open(slots)?), slots))
        }
        Kind::Perf => Box::new(perf::PerfSource::open()?),
        Kind::Watch => Box::new(watch::WatchSource::open()?),
        Kind::Off => Box::new(off::Off),
    })
}
