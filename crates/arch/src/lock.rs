//! A lock that may be taken on any stack, under any TLS block, and across fork.
//!
//! It knows no owner (a std mutex's poison flag would ask thread-local state), and the fork
//! handlers can hold it over a fork and release it in the child. Held for tens of nanoseconds, or
//! for the length of one `mmap`.

//!
//! A long wait sleeps: a microprocess may be stopped while it holds the lock (a fault, a contended
//! `mmap`), and wait for a virtual processor before it goes on. Waiters that spun, one on each of
//! those, would keep it waiting for ever; of sleepers the kernel's half learns.

//!
//! Nor is the holder preempted, if the user scheduler has said how to keep it from that
//! ([`hold_still`]): it may itself wait for the lock while it is masked, on the very virtual
//! processor in whose queue the holder would then be.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Begin and end of a section in which the caller is not preempted.
static STILL: OnceLock<Still> = OnceLock::new();

type Still = (fn(), fn());

/// Registers how a holder of a lock of this crate is kept from being preempted: `begin` is called
/// before one is taken, `end` after it was released, on the same kernel thread; they nest. Once a
/// process; before that no holder is.
pub fn hold_still(begin: fn(), end: fn()) {
    let _ = STILL.set((begin, end));
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and somebody may sleep.
const AWAITED: u32 = 2;

pub(crate) struct Lock(AtomicU32);

impl Lock {
    pub(crate) const fn new() -> Self {
        Lock(AtomicU32::new(FREE))
    }

    pub(crate) fn lock(&self) {
        if let Some((begin, _)) = STILL.get() {
            begin();
        }
        // Acquire pairs with the Release of `unlock`.
        for _ in 0..100 {
            if self
                .0
                .compare_exchange_weak(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                .is_ok()
            {
                return;
            }
            std::hint::spin_loop();
        }
        while self.0.swap(AWAITED, Ordering::Acquire) != FREE {
            futex(&self.0, libc::FUTEX_WAIT, AWAITED);
        }
    }

    pub(crate) fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            futex(&self.0, libc::FUTEX_WAKE, 1);
        }
        if let Some((_, end)) = STILL.get() {
            end();
        }
    }

    /// Runs `f` with the lock held; releases it also when `f` unwinds.
    pub(crate) fn with<R>(&self, f: impl FnOnce() -> R) -> R {
        struct Held<'a>(&'a Lock);
        impl Drop for Held<'_> {
            fn drop(&mut self) {
                self.0.unlock();
            }
        }
        self.lock();
        let _held = Held(self);
        f()
    }
}

/// futex(2), which leaves errno alone.
fn futex(word: &AtomicU32, operation: i32, value: u32) {
    // SAFETY: a live word, and an operation that takes no timeout.
    unsafe { crate::cpu::futex(word.as_ptr(), operation | libc::FUTEX_PRIVATE_FLAG, value) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::UnsafeCell;
    use std::sync::mpsc;

    struct Counter(Lock, UnsafeCell<u64>);
    // SAFETY: the cell is used under the lock.
    unsafe impl Sync for Counter {}

    #[test]
    fn one_at_a_time() {
        let counter = Counter(Lock::new(), UnsafeCell::new(0));
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for n in 0..20_000 {
                        let counter = &counter;
                        counter.0.with(|| {
                            // SAFETY: under the lock.
                            unsafe { *counter.1.get() += 1 };
                            if n % 1000 == 0 {
                                std::thread::yield_now();
                            }
                        });
                    }
                });
            }
        });
        assert_eq!(counter.1.into_inner(), 80_000);
    }

    #[test]
    fn long_waits_sleep() {
        let (lock, (tell, told)) = (&Lock::new(), mpsc::channel());
        std::thread::scope(|s| {
            lock.lock();
            s.spawn(move || {
                // SAFETY: takes nothing, cannot fail.
                tell.send(unsafe { libc::syscall(libc::SYS_gettid) }).expect("it listens");
                lock.with(|| ());
            });
            let stat = format!("/proc/self/task/{}/stat", told.recv().expect("it tells"));
            // One that spins never does.
            while !std::fs::read_to_string(&stat).expect("it lives").contains(") S ") {
                std::thread::yield_now();
            }
            lock.unlock();
        });
    }
}
