//! How soon the kernel runs a kernel thread of ours that has just been woken.
//!
//! A thread that wakes up on a core where another one computes goes before it if its deadline is
//! earlier: the end of its slice, counted from now, against the end of the other's (EEVDF). Else it
//! waits for that, and the kernel looks at a timer tick: up to 4 ms, whatever the level of what is
//! to run. So the level sets the slice (Linux 6.12: `sched_runtime` of sched_setattr(2) for
//! SCHED_OTHER; older ones ignore it):
//!
//! - computes below the default level: slice: the longest; effect: lets a waking thread of any
//!   process go first.
//! - sleeps, and ran something above the default level: slice: a quarter of the usual; effect: goes
//!   first when it wakes.
//! - the same at the default level, beside microprocesses that are [sticky](crate::upcall::sticky):
//!   slice: a quarter of the usual; effect: goes first when it wakes, and not behind those.
//! - else: slice: the usual; effect: is as any other.
//!
//! A slice says how soon, not how much: CPU time is shared out as before; how much is the board's.
//! Not shorter than that quarter: a thread that has used its slice up is outranked again, and 100
//! us, the kernel's least, are over before the thread that computed there has heard that it has to
//! leave (session=same in `benches/results/priority`).

use std::cell::Cell;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use kumihimo_policy::Priority;

/// The most that the kernel allows, nanoseconds.
const LONGEST: u64 = 100_000_000;

/// The process's slice, as of its first runtime, nanoseconds. 0: the kernel has none to set.
static USUAL: OnceLock<u64> = OnceLock::new();
/// Some kernel thread may have another one, and those that it begins with it.
static EVER_CHANGED: AtomicBool = AtomicBool::new(false);
/// The kernel refused (seccomp, say): nobody asks again.
static REFUSED: AtomicBool = AtomicBool::new(false);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Length {
    #[default]
    Usual,
    Short,
    Long,
}

/// The slice of a kernel thread, kept by that thread.
#[derive(Debug, Default)]
pub(crate) struct KernelSlice(Cell<Length>);

impl KernelSlice {
    /// The calling kernel thread goes to sleep, and will be woken for something of about this
    /// level; `beside_sticky`: microprocesses that have kernel threads of their own will want the
    /// cores. A comparison; two system calls where the slice has to change.
    #[inline]
    pub(crate) fn before_sleep(&self, level: u8, beside_sticky: bool) {
        let least = Priority::DEFAULT.get() + u8::from(!beside_sticky);
        self.be(if level >= least { Length::Short } else { Length::Usual });
    }

    /// It computes at this level, for a while already. As above. Returns whether that is a low one.
    #[inline]
    pub(crate) fn computing(&self, level: u8) -> bool {
        let is_low = level < Priority::DEFAULT.get();
        if is_low {
            self.be(Length::Long);
        } else if self.0.get() == Length::Long {
            // A short one it keeps: it sleeps again soon.
            self.be(Length::Usual);
        }
        is_low
    }

    /// It does nothing of the runtime's for a while, or is a fork's child: it, and what it begins,
    /// is as any other. Async-signal-safe.
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
            Length::Long => LONGEST,
        };
        match set(slice) {
            Ok(()) => self.0.set(length),
            Err(_) => REFUSED.store(true, Ordering::Relaxed),
        }
    }
}

/// Resets the slice of the calling kernel thread, which begins and may have inherited one.
pub(crate) fn begin() {
    let usual = *USUAL.get_or_init(|| get().map_or(0, |now| now.sched_runtime));
    if usual != 0 && EVER_CHANGED.load(Ordering::Relaxed) {
        // Refused, it has what it has.
        let _ = set(usual);
    }
}

/// The calling kernel thread is always woken for something urgent and short. Nothing happens where
/// the kernel refuses.
pub(crate) fn shorten() {
    let slice = KernelSlice::default();
    slice.be(Length::Short);
}

/// What the kernel says of the calling kernel thread.
fn get() -> io::Result<libc::sched_attr> {
    // SAFETY: plain data; all zero is a value of it.
    let mut now: libc::sched_attr = unsafe { std::mem::zeroed() };
    now.size = size_of::<libc::sched_attr>() as u32;
    // SAFETY: sched_getattr(2) with 0, the caller, writes at most `size` bytes.
    match unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut now, now.size, 0) } {
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
    // SAFETY: sched_setattr(2) with 0, the caller, reads `size` bytes.
    match unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const wanted, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests;
