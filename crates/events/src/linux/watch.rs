//! Events by polling: finds the kernel threads that sleep in the kernel, without privileges and
//! without descriptors.
//!
//! [`Watch`] combines two checks of a kernel thread. The cheap one reads how long the thread ran
//! since the last look ([`CpuClock`]). The expensive one reads from /proc whether it sleeps now
//! ([`sleeps`]). It makes the expensive check only if the cheap one suggests a sleep.
//!
//! Sources: clock_gettime(2) and pthread_getcpuclockid(3) for the clock, proc_pid_stat(5) for the
//! state.

use std::fmt;
use std::io;
use std::time::Duration;

/// The ID of a kernel thread, as returned by gettid(2).
pub type Tid = libc::pid_t;

/// Returns the ID of the calling kernel thread.
pub(crate) fn this_tid() -> Tid {
    kumihimo_arch::kernel::gettid()
}

/// The time that one kernel thread of this process has spent on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// Returns the clock of the kernel thread `tid`. Does not check whether that thread exists.
    pub const fn of(tid: Tid) -> CpuClock {
        /// CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD_MASK (linux/posix-timers_types.h): the scheduler's
        /// account, which is exact even while the thread runs.
        const SCHED_PER_THREAD: i32 = 2 | 4;
        CpuClock((!tid << 3) | SCHED_PER_THREAD)
    }

    /// Returns the time in nanoseconds, or `None` if this process has no such kernel thread (any
    /// more). Takes about 200 ns.
    pub fn read(self) -> Option<u64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a timespec to be written.
        let told = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        (told == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

/// Returns whether the kernel thread `tid` of this process sleeps in the kernel, interruptibly or
/// not. Returns false if the thread has ended, or if its state cannot be read (no /proc:
/// [`readable`]). The result may be out of date. Opens and closes /proc/self/task/TID/stat, which
/// takes about 7 us.
///
/// A thread that is about to sleep and has not left its CPU yet counts as asleep: the kernel sets
/// the state first. While no descriptor or memory is left to read the state with, every thread
/// counts as asleep. A VP taken from a running thread costs a hand-off, but a VP left to a sleeper
/// may be held up for ever.
pub fn sleeps(tid: Tid) -> bool {
    match state(tid) {
        Ok(state) => matches!(state, b'S' | b'D'),
        Err(e) => matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)),
    }
}

/// As [`sleeps`], but returns false if the state cannot be read: for reports of violations.
pub(crate) fn is_asleep(tid: Tid) -> bool {
    matches!(state(tid), Ok(b'S' | b'D'))
}

/// Returns whether `tid` runs or waits only for a core. Returns false if the state cannot be read.
pub(crate) fn is_awake(tid: Tid) -> bool {
    matches!(state(tid), Ok(b'R'))
}

/// Returns the time that kernel thread `tid` has spent in user mode, in nanoseconds. The kernel
/// accounts for it in ticks of 1 to 10 ms (proc_pid_stat(5), `utime`).
pub(crate) fn user_time(tid: Tid) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).ok()?;
    // The 14th field; the third field follows the name.
    let ticks: u64 = text[text.rfind(')')? + 1..].split_whitespace().nth(11)?.parse().ok()?;
    // SAFETY: takes an integer.
    let a_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
    ticks.checked_mul(1_000_000_000 / a_second.max(1))
}

/// Checks whether [`sleeps`] can read the states of threads.
///
/// # Errors
/// Those of open(2) and read(2) on /proc/self/task/TID/stat.
pub fn readable() -> io::Result<()> {
    state(this_tid()).map(|_| ())
}

fn state(tid: Tid) -> io::Result<u8> {
    use std::io::Write;
    // No allocation: this is called in a loop, and by threads that must not block on the
    // allocator's lock.
    let mut path = [0u8; 48];
    write!(&mut path[..], "/proc/self/task/{tid}/stat\0")?;
    // SAFETY: the path is NUL-terminated.
    let fd = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut text = [0u8; 96];
    // SAFETY: `text` is live and as long as the size argument.
    let n = unsafe { kumihimo_arch::kernel::read(fd, text.as_mut_ptr().cast(), text.len()) };
    let read = usize::try_from(n).map_err(|_| io::Error::last_os_error());
    // SAFETY: opened above, and not shared.
    unsafe { kumihimo_arch::kernel::close(fd) };
    state_in(&text[..read?]).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The place in the kernel where a thread sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitSite {
    /// The kernel function, from /proc/PID/wchan.
    pub function: String,
    /// The number of the system call, from /proc/PID/syscall. Empty if that file is not readable.
    pub call: String,
    /// Whether the thread waits in futex(2) without a timeout.
    pub is_endless: bool,
}

impl WaitSite {
    /// Returns the place where thread `tid` of this process sleeps, or `None` if it does not sleep.
    /// Blocks the kernel thread while it reads /proc.
    #[must_use]
    pub fn of(tid: Tid) -> Option<WaitSite> {
        if !is_asleep(tid) {
            return None;
        }
        let ask = |what: &str| {
            std::fs::read_to_string(format!("/proc/self/task/{tid}/{what}")).unwrap_or_default()
        };
        Some(WaitSite::from(&ask("wchan"), &ask("syscall")))
    }

    fn from(function: &str, call: &str) -> WaitSite {
        let mut words = call.split_whitespace();
        let number = words.next().unwrap_or_default();
        let is_futex = number.parse() == Ok(libc::SYS_futex);
        // The fourth argument points to the timeout; null means none.
        let is_endless = is_futex && words.nth(3) == Some("0x0");
        WaitSite { function: function.trim().to_owned(), call: number.to_owned(), is_endless }
    }
}

impl fmt::Display for WaitSite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "asleep in {}, system call {}", self.function, self.call)
    }
}

/// Returns the third field of /proc/PID/stat. The second one, a name in parentheses, may contain
/// any character, including `)`. No later field contains one.
fn state_in(text: &[u8]) -> Option<u8> {
    let name_ends = text.iter().rposition(|b| *b == b')')?;
    text.get(name_ends + 2).copied()
}

/// The state of a slot that [`Watch::look`] receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedThread {
    /// Whether a claim of the slot may succeed ([`Slot::is_open`](crate::Slot::is_open)).
    pub open: bool,
    /// The ID of the kernel thread that carries the VP.
    pub tid: Tid,
}

/// The clocks and states that a [`Watch`] reads: [`ProcProbe`], or a fake in tests.
pub trait ThreadProbe {
    /// Returns the time in nanoseconds, monotonic.
    fn now(&mut self) -> u64;
    /// As [`CpuClock::read`].
    fn cpu_time(&mut self, tid: Tid) -> Option<u64>;
    /// As [`sleeps`].
    fn sleeps(&mut self, tid: Tid) -> bool;
}

/// Reads the clocks and states of the kernel threads of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcProbe;

impl ThreadProbe for ProcProbe {
    fn now(&mut self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a live timespec to be written. Cannot fail.
        unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    }
    fn cpu_time(&mut self, tid: Tid) -> Option<u64> {
        CpuClock::of(tid).read()
    }
    fn sleeps(&mut self, tid: Tid) -> bool {
        sleeps(tid)
    }
}

/// Finds the kernel threads that sleep with an open slot, by repeated looks at all slots. Does not
/// wait by itself.
#[derive(Debug, Default)]
pub struct Watch {
    /// By slot: the thread that occupied it at the last look, if the slot was open, and its CPU
    /// time then.
    seen: Vec<Option<(Tid, u64)>>,
    /// The time of the last look.
    at: u64,
    period: Duration,
    /// The number of looks since a sleeper was found.
    calm: u32,
}

impl Watch {
    /// The time until the next look while blocks are frequent.
    pub const PERIOD: Duration = Duration::from_micros(100);
    /// The longest time until the next look while there are no blocks. A thread that wakes every
    /// 100 us takes a quarter of a core on a virtual machine.
    pub const LONGEST: Duration = Duration::from_micros(1600);
    /// The number of looks without a sleeper after which blocks are no longer frequent.
    const CALM: u32 = 64;

    /// Creates a watch that has seen no slot.
    pub const fn new() -> Watch {
        Watch { seen: Vec::new(), at: 0, period: Watch::PERIOD, calm: 0 }
    }

    /// Takes one look at all slots. Considers the open slots whose kernel thread ran for less than
    /// half of the time since the last look. Calls `asleep` with the index of each of them whose
    /// thread sleeps now. Repeats the call at every look while that holds. Returns the time to wait
    /// until the next look.
    ///
    /// Costs one [`ThreadProbe::cpu_time`] for each open slot, and one [`ThreadProbe::sleeps`] for
    /// each thread that ran so little. A sleeper is reported at its second look at the earliest. A
    /// thread need not have been idle for the whole interval. Otherwise a thread that wakes again
    /// and again for a moment would keep its virtual processor for ever.
    ///
    /// Slots may appear, vanish and change their index between two looks. A slot with a new thread
    /// is only recorded.
    pub fn look(
        &mut self,
        slots: &[WatchedThread],
        probe: &mut impl ThreadProbe,
        mut asleep: impl FnMut(usize),
    ) -> Duration {
        self.seen.resize(slots.len(), None);
        let now = probe.now();
        let half = now.saturating_sub(std::mem::replace(&mut self.at, now)) / 2;
        let mut found = false;
        for (i, (slot, seen)) in slots.iter().zip(&mut self.seen).enumerate() {
            let before = seen.take();
            if !slot.open {
                continue;
            }
            // A thread that has ended has no clock, and is not reported.
            let Some(time) = probe.cpu_time(slot.tid) else { continue };
            *seen = Some((slot.tid, time));
            let ran_little = before
                .is_some_and(|(tid, then)| tid == slot.tid && time.saturating_sub(then) <= half);
            if ran_little && probe.sleeps(slot.tid) {
                found = true;
                asleep(i);
            }
        }
        self.calm = if found { 0 } else { self.calm.saturating_add(1) };
        self.period = if self.calm < Watch::CALM {
            Watch::PERIOD
        } else {
            (self.period * 2).min(Watch::LONGEST)
        };
        self.period
    }
}

#[cfg(test)]
mod tests;
