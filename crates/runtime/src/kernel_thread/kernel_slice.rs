//! EEVDF time slices: how soon the kernel runs a kernel thread of the runtime after waking it.
//!
//! Under EEVDF, a thread that wakes up on the core of a computing thread preempts that thread if
//! its own virtual deadline is earlier. The deadline is the end of its slice, counted from now.
//! Otherwise the woken thread waits until the next timer tick at which the deadline is reached: up
//! to 4 ms, whatever the level of its microprocess. So the level determines the slice (since Linux
//! 6.12, `sched_runtime` of sched_setattr(2) for SCHED_OTHER; older kernels ignore it):
//!
//! - A thread that computes below the default level gets the longest slice. Waking threads of any
//!   process preempt it.
//! - A thread that computes something which gives way to others of its level gets twice the usual
//!   slice. The threads of the runtime and of the program that wake those others preempt it. One
//!   that has used up its share waits until the slice ends, so it is not longer.
//! - A thread that sleeps, and ran something above the default level, gets a quarter of the usual
//!   slice. It preempts others when it wakes.
//! - A thread that sleeps, and ran something at the default level beside
//!   [sticky](crate::upcall::sticky) microprocesses, also gets a quarter of the usual slice. It
//!   preempts the threads of those when it wakes.
//! - Any other thread keeps the usual slice.
//!
//! A slice affects latency, not the share of CPU time, which the board controls. It is not
//! shortened further, because a thread that has used up its slice is preempted again. The kernel's
//! minimum of 100 us is over before the notified computing thread has left the core (session=same
//! in `lab/results/priority`).

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use kumihimo_arch::kernel_attributes;
use kumihimo_policy::Priority;

/// The longest slice that the kernel allows, in nanoseconds.
const LONGEST: u64 = 100_000_000;

/// The process's slice at the start of its first runtime, in nanoseconds. 0: the kernel has no
/// settable slice.
static USUAL: OnceLock<u64> = OnceLock::new();
/// Whether some kernel thread may have a different slice. Threads that it starts inherit it.
static EVER_CHANGED: AtomicBool = AtomicBool::new(false);
/// Whether the kernel has refused a change (for example by seccomp). Then no thread tries again.
static REFUSED: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Length {
    #[default]
    Usual,
    Short,
    Double,
    Long,
}

/// The slice of a kernel thread, set by that thread itself.
#[derive(Debug, Default)]
pub(crate) struct KernelSlice(Cell<Length>);

impl KernelSlice {
    /// Sets the slice before the calling kernel thread sleeps. It will be woken for something of
    /// about `level`. Pass `beside_sticky` if microprocesses with kernel threads of their own
    /// compete for the cores. Costs a comparison, and two system calls if the slice has to change.
    #[inline]
    pub(crate) fn before_sleep(&self, level: u8, beside_sticky: bool) {
        let least = Priority::DEFAULT.get() + u8::from(!beside_sticky);
        self.be(if level >= least { Length::Short } else { Length::Usual });
    }

    /// Sets the slice of a thread that has computed at `level` for a while. Pass `gives_way` if its
    /// microprocess gives way to others that become runnable. Costs as `before_sleep`. Returns
    /// whether the level is low.
    #[inline]
    pub(crate) fn computing(&self, level: u8, gives_way: bool) -> bool {
        let is_low = level < Priority::DEFAULT.get();
        if is_low {
            self.be(Length::Long);
        } else if gives_way {
            self.gives_way();
        } else if matches!(self.0.get(), Length::Long | Length::Double) {
            // A short slice is kept, because the thread sleeps again soon.
            self.be(Length::Usual);
        }
        is_low
    }

    /// Sets the slice of a thread whose microprocess gives way to others that become runnable.
    #[inline]
    pub(crate) fn gives_way(&self) {
        self.be(Length::Double);
    }

    /// Restores the usual slice: the thread does no work of the runtime for a while, or is in the
    /// child of a fork. Async-signal-safe.
    pub(crate) fn give_back(&self) {
        self.be(Length::Usual);
    }

    #[inline]
    fn be(&self, length: Length) {
        if self.0.get() != length {
            self.change(length);
        }
    }

    #[cold]
    fn change(&self, length: Length) {
        let Some(usual) =
            USUAL.get().copied().filter(|usual| *usual != 0 && !REFUSED.load(Ordering::Relaxed))
        else {
            return;
        };
        EVER_CHANGED.store(true, Ordering::Relaxed);
        let slice = match length {
            Length::Usual => usual,
            Length::Short => usual / 4,
            Length::Double => 2 * usual,
            Length::Long => LONGEST,
        };
        match set(slice) {
            Ok(()) => self.0.set(length),
            Err(_) => REFUSED.store(true, Ordering::Relaxed),
        }
    }
}

/// Resets the slice of the calling kernel thread, which has just started and may have inherited
/// one.
pub(crate) fn begin() {
    let usual = *USUAL.get_or_init(|| get().map_or(0, |now| now.sched_runtime));
    if usual != 0 && EVER_CHANGED.load(Ordering::Relaxed) {
        // On failure the thread keeps its inherited slice.
        let _ = set(usual);
    }
}

/// Gives the calling kernel thread a short slice, because it is only woken for something urgent and
/// short. Does nothing if the kernel refuses.
pub(crate) fn shorten() {
    let slice = KernelSlice::default();
    slice.be(Length::Short);
}

/// Returns the scheduling attributes of the calling kernel thread.
fn get() -> io::Result<libc::sched_attr> {
    // SAFETY: plain data; all zero is a value of it.
    let mut now: libc::sched_attr = unsafe { std::mem::zeroed() };
    now.size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: sched_getattr(2) with 0, the caller, writes at most `size` bytes.
    match unsafe { kumihimo_arch::call!(libc::SYS_sched_getattr, 0, &raw mut now, now.size, 0) } {
        0 => Ok(now),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sets the calling kernel thread's slice, in nanoseconds. Does nothing unless its policy is
/// SCHED_OTHER: another policy was chosen deliberately.
fn set(slice: u64) -> io::Result<()> {
    let now = get()?;
    if now.sched_policy != libc::SCHED_OTHER as u32 {
        return Ok(());
    }
    let wanted = libc::sched_attr { sched_runtime: slice, ..now };
    kernel_attributes::set_scheduling(&wanted)
}

#[cfg(test)]
mod tests;
