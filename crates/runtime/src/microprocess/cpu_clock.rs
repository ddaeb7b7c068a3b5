//! The CPU clock of one microprocess: CLOCK_THREAD_CPUTIME_ID in clock_gettime(2).
//!
//! The time on kernel threads that it has left is summed up. While one counts for it, that thread's
//! own clock tells the rest, also to other threads: a microprocess that is alone may go on for ever
//! without a switch that would end its count.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use kumihimo_arch::kernel_attributes;

/// A clock, in nanoseconds since the microprocess first read it. Changed by the holder of the
/// microprocess; any thread reads it.
#[derive(Debug)]
pub(crate) struct CpuClock {
    /// Odd while the fields below change.
    version: AtomicU32,
    /// ID of the kernel thread that counts, or 0.
    on: AtomicU32,
    /// What is to be added to the clock of that thread, or to nothing if none counts. May wrap.
    offset: AtomicU64,
}

impl CpuClock {
    pub(crate) const fn new() -> CpuClock {
        CpuClock { version: AtomicU32::new(0), on: AtomicU32::new(0), offset: AtomicU64::new(0) }
    }

    fn change(&self, on: u32, offset: u64) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version.wrapping_add(1), Ordering::Relaxed);
        // A reader that finds one of the new values finds the odd version or a later one.
        fence(Ordering::Release);
        self.on.store(on, Ordering::Relaxed);
        self.offset.store(offset, Ordering::Relaxed);
        self.version.store(version.wrapping_add(2), Ordering::Release);
    }

    /// Sets the clock to zero. It stands still.
    pub(crate) fn reset(&self) {
        self.change(0, 0);
    }

    /// Lets kernel thread `tid` count, whose clock shows `now`. None counts yet.
    pub(crate) fn start(&self, tid: u32, now: u64) {
        self.change(tid, self.own(0).wrapping_sub(now));
    }

    /// Ends the count of the kernel thread, whose clock shows `now`.
    pub(crate) fn stop(&self, now: u64) {
        self.change(0, self.own(now));
    }

    /// Returns the time, for the microprocess itself, on the kernel thread that counts and whose
    /// clock shows `now`.
    pub(crate) fn own(&self, now: u64) -> u64 {
        self.offset.load(Ordering::Relaxed).wrapping_add(now)
    }

    /// Returns the time, from any thread. There is none if the kernel thread that counts has ended,
    /// and in a signal handler that has interrupted a change of the clock. Async-signal-safe.
    pub(crate) fn read(&self) -> Option<u64> {
        // A change takes four stores; only one that is interrupted lasts for longer.
        const ATTEMPTS: usize = 100;
        for _ in 0..ATTEMPTS {
            let version = self.version.load(Ordering::Acquire);
            let (on, offset) =
                (self.on.load(Ordering::Relaxed), self.offset.load(Ordering::Relaxed));
            let now = if on == 0 { Some(0) } else { kernel_attributes::cpu_time_of(on) };
            // Pairs with the fence of `change`.
            fence(Ordering::Acquire);
            let is_whole =
                version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version;
            if is_whole {
                return now.map(|now| offset.wrapping_add(now));
            }
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn compute() {
        for n in 0..100_000 {
            std::hint::black_box(n);
        }
    }

    #[test]
    fn clock_advances_for_others_while_a_thread_counts() {
        let clock = CpuClock::new();
        assert_eq!(clock.read(), Some(0));
        // SAFETY: takes no arguments and cannot fail.
        let tid = unsafe { libc::gettid() }.cast_unsigned();
        clock.start(tid, kernel_attributes::cpu_time());
        let mut before = clock.read().expect("a time");
        for _ in 0..3 {
            compute();
            let now =
                std::thread::scope(|all| all.spawn(|| clock.read()).join().expect("no panic"));
            let now = now.expect("a time");
            assert!(now > before);
            before = now;
        }
        clock.stop(kernel_attributes::cpu_time());
        let stopped = clock.read().expect("a time");
        assert!(stopped >= before);
        compute();
        assert_eq!(clock.read(), Some(stopped));
        clock.reset();
        assert_eq!(clock.read(), Some(0));
    }

    #[test]
    fn counts_of_several_threads_add_up() {
        let clock = CpuClock::new();
        clock.start(1, 5);
        assert_eq!(clock.own(6), 1);
        clock.stop(12);
        assert_eq!(clock.read(), Some(7));
        clock.start(2, 100);
        clock.stop(103);
        assert_eq!(clock.read(), Some(10));
        // No thread has this ID.
        clock.start(u32::MAX >> 4, 0);
        assert_eq!(clock.read(), None);
    }
}
