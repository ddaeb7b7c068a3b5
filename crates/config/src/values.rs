//! Plain types of the settings, and the grammar of each.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use crate::span::span;

/// Largest number of virtual processors.
pub const MAX_VPS: usize = 1024;
/// Largest limit on kernel threads.
pub const MAX_KERNEL_THREADS: usize = 1 << 20;
/// Largest stack of a microprocess, in bytes. The TLS block takes a part of it.
pub const MAX_STACK: usize = 1 << 30;
/// Largest number of system calls that start a batch.
pub const LARGEST_BATCH: usize = 64;
/// Numbers of records that a buffer of the trace may hold.
pub const TRACE_RECORDS: RangeInclusive<usize> = 8..=1 << 24;
/// The signal of `KUMI_PREEMPT=signal`: ignored by default, and hardly used by programs. Go chose
/// it for the same reasons.
pub const DEFAULT_PREEMPT_SIGNAL: i32 = libc::SIGURG;

/// A type whose values are words.
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

            /// The word for this value.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $($name::$value => $word,)+
                }
            }

            /// The value of that word.
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
        /// The context-switch records of perf.
        Perf = "perf",
        /// A kernel thread that samples the others.
        Watch = "watch",
        /// None.
        Off = "off",
    }
}

words! {
    /// `KUMI_LAB=tls=...`: thread-local storage of microprocesses.
    Tls {
        /// An own block, cloned.
        Clone = "clone",
        /// An own block from a donor thread.
        Donor = "donor",
        /// None: microprocesses are kernel threads, 1:1.
        Kernel = "kernel",
        /// None, as where the self-test of blocks fails.
        Fail = "fail",
    }
}

words! {
    /// `KUMI_LAB=guard=...`: guard pages of stacks.
    Guard {
        /// `MADV_GUARD_INSTALL`, where the kernel has it.
        Install = "install",
        /// mprotect(2).
        Mprotect = "mprotect",
    }
}

words! {
    /// `KUMI_LAB=fsbase=...`: how FS and GS are written.
    FsBase {
        /// The instructions, where CPU and kernel allow them.
        Instruction = "fsgsbase",
        /// arch_prctl(2).
        ArchPrctl = "arch_prctl",
    }
}

words! {
    /// `KUMI_LAB=dlopen=...`: the program's dlopen(3).
    Dlopen {
        /// The library's definition, where it is the first one.
        Interposed = "interposed",
        /// The C library's, as if Kumihimo were part of a shared library.
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
        /// One lock a kind.
        Kind = "kind",
        /// One lock a resource.
        Id = "id",
        /// Parts by virtual processor.
        Vp = "vp",
    }
}

words! {
    /// `KUMI_LAB=bpf=...`: where the BPF program runs.
    Bpf {
        /// At an event of each kernel thread.
        Thread = "thread",
        /// At the scheduler's tracepoint.
        Switch = "switch",
    }
}

/// Above any signal's number; the system's own bound is SIGRTMAX.
const MAX_SIGNAL: usize = 1024;

/// `KUMI_PREEMPT`: how a kernel thread is interrupted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Preempt {
    /// By a task clock of perf.
    Clock,
    /// By the signal of this number.
    Signal(i32),
    /// Not at all.
    Off,
}

impl Preempt {
    /// What [`parse`](Preempt::parse) accepts.
    pub const ALLOWED: &str = "clock, signal, signal=N or off, with N a signal that a handler can catch and no fault uses";

    /// The value of `text`.
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

/// Whether the runtime can have the handler of `signal`: no fault, no SIGTRAP, none that cannot be
/// caught, none of the C library's own.
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

/// What the watchdog does about a user scheduler that violates the event protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMisbehaviour {
    /// Nothing: there is no watchdog.
    Ignore,
    /// Reports it.
    Report,
    /// Reports it, and the others continue without the VP.
    Override,
    /// Reports it and aborts the process.
    End,
}

/// `KUMI_WATCHDOG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watchdog {
    /// The reaction.
    pub on: OnMisbehaviour,
    /// The time after which it comes. `None`: the default.
    pub bound: Option<Duration>,
}

impl Watchdog {
    /// What [`parse`](Watchdog::parse) accepts.
    pub const ALLOWED: &str = "off, report, override or end, \
         or one of these with a bound of 100 to 3600000 milliseconds: report=200";

    /// The value of `text`.
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

/// `KUMI_SHARE`: a bound on the CPU time of the address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Thousandths of one core, 1 to 1,024,000.
    pub per_mille: u32,
    /// The period, 1 ms to 10 s. `None`: the default.
    pub period: Option<Duration>,
    /// Whether the address space stops when its share is used up.
    pub hard: bool,
}

impl Share {
    /// What [`parse`](Share::parse) accepts.
    pub const ALLOWED: &str = "per cent of one core, 0.1% to 102400%, then optionally a period of \
         1ms to 10s (default 100ms) and hard, with commas between them: 50%,20ms,hard";

    /// The value of `text`.
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
    /// The first usable one of the user's session and of /dev/shm and /tmp.
    #[default]
    Default,
    /// None: the process has no number and no control socket.
    Off,
    /// This one, an absolute path.
    At(PathBuf),
}

/// `KUMI_ARBITER`: how cores are shared with other address spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Arbiter {
    /// By priority, among the address spaces at the board of the run-time directory.
    #[default]
    On,
    /// By the kernel. The address space is at the board nevertheless.
    Off,
    /// By the kernel. The address space is at no board.
    NoBoard,
    /// By priority, among those at the board of this absolute path.
    BoardAt(PathBuf),
}

/// `KUMI_LAB=batch=...`: when system calls enter the kernel together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Batch {
    /// Where it pays.
    Adaptive,
    /// By the paper's threshold.
    Paper,
    /// As soon as this many wait.
    Fixed(usize),
    /// Never.
    Off,
}

impl Batch {
    /// What [`parse`](Batch::parse) accepts.
    pub const ALLOWED: &str = "adaptive, paper, off or fixed:N, with N from 1 to 64";

    /// The value of `text`.
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

/// Names of signals for `KUMI_DUMP_SIGNAL`: those that no fault, no job control and no part of the
/// runtime uses.
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

/// What `KUMI_DUMP_SIGNAL` accepts.
pub const DUMP_SIGNALS: &str = "HUP, INT, QUIT, USR1, USR2, TERM, URG, WINCH, PWR or RTMIN+N";

/// The number of the signal that asks for a dump: a name, with or without SIG, or `RTMIN+N`.
#[must_use]
pub fn dump_signal(text: &str) -> Option<i32> {
    let name = text.strip_prefix("SIG").unwrap_or(text);
    if let Some(n) = name.strip_prefix("RTMIN+") {
        let n = number(n, 0..=64)?;
        return libc::SIGRTMIN().checked_add(n as i32).filter(|signal| is_dump_signal(*signal));
    }
    SIGNALS.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal)
}

/// Whether a signal may ask for a dump.
#[must_use]
pub fn is_dump_signal(signal: i32) -> bool {
    SIGNALS.iter().any(|(_, known)| *known == signal)
        || (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&signal)
}

/// A whole number in decimal digits, within a range.
pub(crate) fn number(text: &str, range: RangeInclusive<usize>) -> Option<usize> {
    let is_plain = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|n| is_plain && range.contains(n))
}

/// `on` or `off`.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    }
}
