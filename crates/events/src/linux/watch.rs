//! Events where nothing is allowed: which kernel threads sleep in the kernel, without privileges
//! and without descriptors.
//!
//! Two questions, asked from outside: how much has a kernel thread run since I looked last (its CPU
//! clock, [`CpuClock`]), and does it sleep now ([`sleeps`], from /proc). [`Watch`] puts them
//! together: the dear one only where the cheap one gives reason to.
//!
//! Sources: clock_gettime(2) and pthread_getcpuclockid(3) for the clock, proc_pid_stat(5) for the
//! state.

use std::fmt;
use std::io;
use std::time::Duration;

/// A kernel thread, as gettid(2) gives it.
pub type Tid = libc::pid_t;

/// The calling kernel thread's.
pub(crate) fn this_tid() -> Tid {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::gettid() }
}

/// The time that one kernel thread of this process has spent on a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CpuClock(libc::clockid_t);

impl CpuClock {
    /// That of the kernel thread `tid`. Does not ask whether there is one.
    pub const fn of(tid: Tid) -> CpuClock {
        /// CPUCLOCK_SCHED | CPUCLOCK_PERTHREAD_MASK, linux/posix-timers_types.h: the scheduler's
        /// own account, exact also while it runs.
        const SCHED_PER_THREAD: i32 = 2 | 4;
        CpuClock((!tid << 3) | SCHED_PER_THREAD)
    }

    /// In ns; none if this process has no such kernel thread (any more). About 200 ns.
    pub fn read(self) -> Option<u64> {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a timespec to be written.
        let told = unsafe { libc::clock_gettime(self.0, &raw mut time) };
        (told == 0).then_some(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }
}

/// Whether the kernel thread `tid` of this process sleeps in the kernel, interruptibly or not.
/// False if it has ended, or if nobody can tell (no /proc: [`readable`]). Out of date at once.
/// Opens and closes /proc/self/task/TID/stat: about 7 us.
///
/// One that was about to sleep and has not left its CPU yet counts as asleep: the kernel sets the
/// state first. So does each while no descriptor or memory is left to look with: a virtual
/// processor taken from one that runs costs a hand-off, one left to a sleeper may be held up for
/// ever.
pub fn sleeps(tid: Tid) -> bool {
    match state(tid) {
        Ok(state) => matches!(state, b'S' | b'D'),
        Err(e) => matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM)),
    }
}

/// As [`sleeps`], but no where nobody can tell: for an accusation.
pub(crate) fn is_asleep(tid: Tid) -> bool {
    matches!(state(tid), Ok(b'S' | b'D'))
}

/// Whether `tid` runs or waits for nothing but a core. False where nobody can tell.
pub(crate) fn is_awake(tid: Tid) -> bool {
    matches!(state(tid), Ok(b'R'))
}

/// The time that kernel thread `tid` has spent in user mode, ns, as the kernel accounts for it: by
/// ticks of 1 to 10 ms (proc_pid_stat(5), `utime`).
pub(crate) fn user_time(tid: Tid) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).ok()?;
    // The 14th field; the third one follows the name.
    let ticks: u64 = text[text.rfind(')')? + 1..].split_whitespace().nth(11)?.parse().ok()?;
    // SAFETY: takes an integer.
    let a_second = u64::try_from(unsafe { libc::sysconf(libc::_SC_CLK_TCK) }).ok()?;
    ticks.checked_mul(1_000_000_000 / a_second.max(1))
}

/// Whether [`sleeps`] can tell anything.
///
/// # Errors
/// What open(2) or read(2) says of /proc/self/task/TID/stat.
pub fn readable() -> io::Result<()> {
    state(this_tid()).map(|_| ())
}

fn state(tid: Tid) -> io::Result<u8> {
    use std::io::Write;
    // No allocation: this is called in a loop, and by threads that must not block on an allocator's
    // lock.
    let mut path = [0u8; 48];
    write!(&mut path[..], "/proc/self/task/{tid}/stat\0")?;
    // SAFETY: a string that ends in a 0.
    let fd = unsafe { libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    let mut text = [0u8; 96];
    // SAFETY: `text` is as long as it says.
    let n = unsafe { libc::read(fd, text.as_mut_ptr().cast(), text.len()) };
    let read = usize::try_from(n).map_err(|_| io::Error::last_os_error());
    // SAFETY: opened above, known to nobody else.
    unsafe { libc::close(fd) };
    state_in(&text[..read?]).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// The place in the kernel where a thread sleeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitSite {
    /// The kernel function, from /proc/PID/wchan.
    pub function: String,
    /// The number of the system call, from /proc/PID/syscall. Empty if that is not readable.
    pub call: String,
    /// Whether it waits in futex(2) without a timeout.
    pub is_endless: bool,
}

impl WaitSite {
    /// The place of thread `tid` of this process; `None` if it does not sleep. Blocks the kernel
    /// thread while it reads /proc.
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

/// The third field of /proc/PID/stat. The second, a name in parentheses, may hold anything, a `)`
/// too; so may nothing behind it.
fn state_in(text: &[u8]) -> Option<u8> {
    let name_ends = text.iter().rposition(|b| *b == b')')?;
    text.get(name_ends + 2).copied()
}

/// What a [`Watch`] is told of a slot at each look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedThread {
    /// Whether a claim of the slot may succeed ([`Slot::is_open`](crate::Slot::is_open)).
    pub open: bool,
    /// The kernel thread that carries the VP.
    pub tid: Tid,
}

/// The answers that a [`Watch`] needs: [`ProcProbe`], or a fake in tests.
pub trait ThreadProbe {
    /// In ns, monotonic.
    fn now(&mut self) -> u64;
    /// As [`CpuClock::read`].
    fn cpu_time(&mut self, tid: Tid) -> Option<u64>;
    /// As [`sleeps`].
    fn sleeps(&mut self, tid: Tid) -> bool;
}

/// The kernel's answers about the kernel threads of this process.
#[derive(Clone, Copy, Debug, Default)]
pub struct ProcProbe;

impl ThreadProbe for ProcProbe {
    fn now(&mut self) -> u64 {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: a timespec to be written. Cannot fail.
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

/// Finds those that sleep with an open slot, by looking at all of them again and again. It does not
/// wait by itself.
#[derive(Debug, Default)]
pub struct Watch {
    /// Per slot: the thread that stood there at the last look, if it was open, and its CPU time
    /// then.
    seen: Vec<Option<(Tid, u64)>>,
    /// When that was.
    at: u64,
    period: Duration,
    /// Looks since one was found asleep.
    calm: u32,
}

impl Watch {
    /// Until the next look while blocks are frequent.
    pub const PERIOD: Duration = Duration::from_micros(100);
    /// Until the next look while there are none, at most: a thread that wakes every 100 us takes a
    /// quarter of a core on a virtual machine.
    pub const LONGEST: Duration = Duration::from_micros(1600);
    /// After so many looks that found nothing, blocks are no longer frequent.
    const CALM: u32 = 64;

    /// Of nothing yet.
    pub const fn new() -> Watch {
        Watch { seen: Vec::new(), at: 0, period: Watch::PERIOD, calm: 0 }
    }

    /// One look: calls `asleep` with the index of each slot that is open and whose kernel thread
    /// ran for less than half of the time since the last look, and sleeps now; again at every look
    /// as long as that stays so. The result: how long to wait before the next one.
    ///
    /// Costs one [`ThreadProbe::cpu_time`] for each open slot, one [`ThreadProbe::sleeps`] for each
    /// of these that ran so little. Asleep is told at the second look at the earliest. Not only
    /// where nothing ran at all: one that wakes again and again for a moment would keep its virtual
    /// processor for ever.
    ///
    /// Slots may come and go between two looks, and stand elsewhere: one that was not there the
    /// last time is only remembered.
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
            // One that has ended has no clock, and nothing is told of it.
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
