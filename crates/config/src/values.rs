//! Plain types of the settings, and the grammar of each.

pub mod size;
pub mod span;

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use span::span;

/// Maximum number of virtual processors.
pub const MAX_VPS: usize = 1024;
/// Maximum limit on kernel threads.
pub const MAX_KERNEL_THREADS: usize = 1 << 20;
/// Maximum stack of a microprocess in bytes, including the TLS block.
pub const MAX_STACK: usize = 1 << 30;
/// Maximum number of system calls that start a batch.
pub const LARGEST_BATCH: usize = 64;
/// Allowed numbers of records in a buffer of the trace.
pub const TRACE_RECORDS: RangeInclusive<usize> = 8..=1 << 24;
/// Signal of `KUMI_PREEMPT=signal`: ignored by default, and rarely used by programs. Go preempts
/// with SIGURG for the same reasons (runtime/signal_unix.go, `sigPreempt`).
pub const DEFAULT_PREEMPT_SIGNAL: i32 = libc::SIGURG;

/// Declares a type whose values are words.
macro_rules! words {
    ($(#[$of_type:meta])* $name:ident { $($(#[$of_value:meta])* $value:ident = $word:literal,)+ }) => {
        $(#[$of_type])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $($(#[$of_value])* $value,)+
        }

        impl $name {
            /// All values.
            pub const ALL: &[$name] = &[$($name::$value,)+];

            /// Returns the word for this value.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$value => $word,)+
                }
            }

            /// Returns the value for a word.
            #[must_use]
            pub fn parse(text: &str) -> Option<$name> {
                $name::ALL.iter().copied().find(|value| value.name() == text)
            }
        }
    };
}

words! {
    /// `KUMI_EVENTS`: the source of events.
    Events {
        /// A BPF program at each context switch.
        Bpf = "bpf",
        /// Context-switch records of perf.
        Perf = "perf",
        /// A kernel thread that samples the others.
        Watch = "watch",
        /// No source.
        Off = "off",
    }
}

words! {
    /// `KUMI_LAB=tls=...`: thread-local storage of microprocesses.
    Tls {
        /// A cloned block of its own.
        Clone = "clone",
        /// A block of its own from a donor thread.
        Donor = "donor",
        /// No block: microprocesses are kernel threads, 1:1.
        Kernel = "kernel",
        /// No block, as if the self-test of blocks failed.
        Fail = "fail",
    }
}

words! {
    /// `KUMI_LAB=guard=...`: guard pages of stacks.
    Guard {
        /// `MADV_GUARD_INSTALL`, if the kernel supports it.
        Install = "install",
        /// mprotect(2).
        Mprotect = "mprotect",
    }
}

words! {
    /// `KUMI_LAB=fsbase=...`: how FS and GS are written.
    FsBase {
        /// The FSGSBASE instructions, if CPU and kernel allow them.
        Instruction = "fsgsbase",
        /// arch_prctl(2).
        ArchPrctl = "arch_prctl",
    }
}

words! {
    /// `KUMI_LAB=dlopen=...`: which definition of dlopen(3) the program uses.
    Dlopen {
        /// The library's definition, if it comes first in symbol lookup.
        Interposed = "interposed",
        /// The definition of the C library, as if Kumihimo were part of a shared library.
        Listed = "listed",
    }
}

words! {
    /// `KUMI_LAB=queue=...`: the design of the run queues.
    Queue {
        /// Protect and Waiver Queues in a ring.
        Ring = "ring",
        /// Removal from Waiver Queues under a lock.
        Locked = "locked",
        /// Work stealing.
        Steal = "steal",
    }
}

words! {
    /// `KUMI_LAB=locking=...`: the locking design of the resource table.
    Locking {
        /// One lock per kind.
        Kind = "kind",
        /// One lock per resource.
        Id = "id",
        /// Partitions by virtual processor.
        Vp = "vp",
    }
}

words! {
    /// `KUMI_LAB=bpf=...`: where the BPF program runs.
    Bpf {
        /// At a perf event of each kernel thread.
        Thread = "thread",
        /// At the scheduler's tracepoint.
        Switch = "switch",
    }
}

/// Above the number of any signal; the actual bound is SIGRTMAX.
const MAX_SIGNAL: usize = 1024;

/// `KUMI_PREEMPT`: how a kernel thread is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preempt {
    /// A task clock of perf interrupts the kernel thread.
    Clock,
    /// The signal of this number interrupts the kernel thread.
    Signal(i32),
    /// Kernel threads are not interrupted.
    Off,
}

impl Preempt {
    /// Description of the values that [`parse`](Preempt::parse) accepts.
    pub const ALLOWED: &str = "clock, signal, signal=N or off, with N a signal that a handler can catch and no fault uses";

    /// Parses a value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Preempt> {
        match text.split_once('=') {
            None if text == "clock" => Some(Preempt::Clock),
            None if text == "signal" => Some(Preempt::Signal(DEFAULT_PREEMPT_SIGNAL)),
            None if text == "off" => Some(Preempt::Off),
            Some(("signal", text)) => number(text, 1..=MAX_SIGNAL)
                .and_then(|signal| i32::try_from(signal).ok())
                .filter(|signal| may_preempt(*signal))
                .map(Preempt::Signal),
            _ => None,
        }
    }
}

/// Whether the runtime can handle `signal`. Excludes signals of faults, SIGTRAP, signals that
/// cannot be caught, and signals of the C library.
fn may_preempt(signal: i32) -> bool {
    let taken = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGILL,
        libc::SIGFPE,
        libc::SIGABRT,
        libc::SIGTRAP,
    ];
    (1..=libc::SIGRTMAX()).contains(&signal)
        && !taken.contains(&signal)
        && (signal < 32 || signal >= libc::SIGRTMIN())
}

/// Reaction of the watchdog to a user scheduler that violates the event protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMisbehaviour {
    /// No reaction: the watchdog is off.
    Ignore,
    /// Reports the violation.
    Report,
    /// Reports the violation; the other VPs continue without the VP.
    Override,
    /// Reports the violation and aborts the process.
    End,
}

/// `KUMI_WATCHDOG`: reaction of the watchdog and its bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchdog {
    /// The reaction.
    pub on: OnMisbehaviour,
    /// Time after which the watchdog reacts; `None` means the default.
    pub bound: Option<Duration>,
}

impl Watchdog {
    /// Description of the values that [`parse`](Watchdog::parse) accepts.
    pub const ALLOWED: &str = "off, report, override or end, \
         or one of these with a bound of 100 to 3600000 milliseconds: report=200";

    /// Parses a value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Watchdog> {
        let (name, bound) =
            text.split_once('=').map_or((text, None), |(name, bound)| (name, Some(bound)));
        let on = match name {
            "off" => OnMisbehaviour::Ignore,
            "report" => OnMisbehaviour::Report,
            "override" => OnMisbehaviour::Override,
            "end" => OnMisbehaviour::End,
            _ => return None,
        };
        let bound = match bound {
            None => None,
            Some(bound) => {
                let ms = number(bound, 100..=3_600_000)?;
                Some(Duration::from_millis(ms as u64))
            }
        };
        Some(Watchdog { on, bound })
    }
}

/// `KUMI_SHARE`: bound on the CPU time of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Thousandths of one core, 1 to 1,024,000.
    pub per_mille: u32,
    /// The period, 1 ms to 10 s; `None` means the default.
    pub period: Option<Duration>,
    /// Whether the address space does not run at all once its share is used up.
    pub hard: bool,
}

impl Share {
    /// Description of the values that [`parse`](Share::parse) accepts.
    pub const ALLOWED: &str = "per cent of one core, 0.1% to 102400%, then optionally a period of \
         1ms to 10s (default 100ms) and hard, with commas between them: 50%,20ms,hard";

    /// Parses a value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Share> {
        let mut parts = text.split(',');
        let cores = parts.next()?.strip_suffix('%')?;
        let (whole, tenths) = cores.split_once('.').unwrap_or((cores, "0"));
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        if !digits(whole) || !digits(tenths) || tenths.len() != 1 {
            return None;
        }
        let per_mille =
            whole.parse::<u32>().ok()?.checked_mul(10)?.checked_add(tenths.parse().ok()?)?;
        let (mut period, mut hard) = (None, false);
        for part in parts {
            match part {
                "hard" if !hard => hard = true,
                other if period.is_none() && !hard => period = Some(span(other)?),
                _ => return None,
            }
        }
        let periods = Duration::from_millis(1)..=Duration::from_secs(10);
        let fits = (1..=1_024_000).contains(&per_mille)
            && period.is_none_or(|period| periods.contains(&period));
        fits.then_some(Share { per_mille, period, hard })
    }
}

/// `KUMI_DIR`: the run-time directory, in which address spaces find each other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MachineDir {
    /// The first usable directory: of the user's session, in /dev/shm, or in /tmp.
    #[default]
    Default,
    /// No directory: the process has no number and no control socket.
    Off,
    /// This absolute path.
    At(PathBuf),
}

/// `KUMI_ARBITER`: how cores are shared with other address spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Arbiter {
    /// By priority, at the board of the run-time directory.
    #[default]
    On,
    /// By the kernel's scheduler. The address space still joins the board.
    Off,
    /// By the kernel's scheduler. The address space joins no board.
    NoBoard,
    /// By priority, at the board of this absolute path.
    BoardAt(PathBuf),
}

/// `KUMI_LAB=batch=...`: when system calls enter the kernel together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// A batch starts when it is cheaper than separate calls.
    Adaptive,
    /// A batch starts at the threshold of the papers.
    Paper,
    /// A batch starts as soon as this many calls wait.
    Fixed(usize),
    /// Every call enters the kernel separately.
    Off,
}

/// `KUMI_LAB=ready=...`: the order in which microprocesses run whose descriptors became ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ready {
    /// In the order of arrival.
    Arrival,
    /// Before the others of their level, most of the time.
    Recent,
}

impl Ready {
    /// Parses a value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Ready> {
        match text {
            "arrival" => Some(Ready::Arrival),
            "recent" => Some(Ready::Recent),
            _ => None,
        }
    }
}

impl Batch {
    /// Description of the values that [`parse`](Batch::parse) accepts.
    pub const ALLOWED: &str = "adaptive, paper, off or fixed:N, with N from 1 to 64";

    /// Parses a value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Batch> {
        match text {
            "adaptive" => Some(Batch::Adaptive),
            "paper" => Some(Batch::Paper),
            "off" => Some(Batch::Off),
            _ => text
                .strip_prefix("fixed:")
                .and_then(|n| number(n, 1..=LARGEST_BATCH))
                .map(Batch::Fixed),
        }
    }
}

/// Signals for `KUMI_DUMP_SIGNAL`: those that no fault, no job control and no part of the runtime
/// uses.
const SIGNALS: [(&str, i32); 9] = [
    ("HUP", libc::SIGHUP),
    ("INT", libc::SIGINT),
    ("QUIT", libc::SIGQUIT),
    ("USR1", libc::SIGUSR1),
    ("USR2", libc::SIGUSR2),
    ("TERM", libc::SIGTERM),
    ("URG", libc::SIGURG),
    ("WINCH", libc::SIGWINCH),
    ("PWR", libc::SIGPWR),
];

/// Description of the values that `KUMI_DUMP_SIGNAL` accepts.
pub const DUMP_SIGNALS: &str = "HUP, INT, QUIT, USR1, USR2, TERM, URG, WINCH, PWR or RTMIN+N";

/// Returns the number of a dump signal, given by name, with or without SIG, or as `RTMIN+N`.
#[must_use]
pub fn dump_signal(text: &str) -> Option<i32> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    if let Some(n) = name.strip_prefix("RTMIN+") {
        let n = number(n, 0..=64)?;
        return libc::SIGRTMIN().checked_add(n as i32).filter(|signal| is_dump_signal(*signal));
    }
    SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal)
}

/// Returns whether a signal may request a dump.
#[must_use]
pub fn is_dump_signal(signal: i32) -> bool {
    SIGNALS.iter().any(|(_, known)| *known == signal)
        || (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&signal)
}

/// Parses a whole number in decimal digits, within a range.
pub(crate) fn number(text: &str, range: RangeInclusive<usize>) -> Option<usize> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| is_plain && range.contains(n))
}

/// Parses `on` or `off`.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}
