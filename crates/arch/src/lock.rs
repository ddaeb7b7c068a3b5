//! Lock: a futex mutex that works on any stack, under any TLS block, and across fork.
//!
//! The lock does not record its owner and uses no thread-local state, unlike std's mutex with its
//! poison flag. The fork handlers can therefore hold it across a fork and release it in the child.
//! Critical sections last tens of nanoseconds, or as long as one `mmap`.
//!
//! Waiters sleep after a short spin. A microprocess can lose its virtual processor while it holds
//! the lock (page fault, contended `mmap`). If every virtual processor then ran a spinning waiter,
//! the holder would never run again. A sleeping waiter blocks its kernel thread, which the runtime
//! detects.
//!
//! The holder is not preempted if the runtime has registered hooks with [`hold_still`]. A preempted
//! holder would wait in the run queue of a virtual processor. If the code running there, masked
//! against preemption, needed the same lock, neither could continue.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Hooks that begin and end a section in which the caller is not preempted.
static STILL: OnceLock<Still> = OnceLock::new();

type Still = (fn(), fn());

/// Registers the hooks that keep holders of this crate's locks from being preempted.
///
/// `begin` runs before a lock is acquired and `end` after it is released, on the same kernel
/// thread; calls nest. Only the first registration in a process takes effect. Before it, holders
/// can be preempted.
pub fn hold_still(begin: fn(), end: fn()) {
    let _ = STILL.set((begin, end));
}

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and at least one waiter may be asleep.
const AWAITED: u32 = 2;

/// A lock as this module describes. `kumi run` uses it for its heap.
#[derive(Debug)]
pub struct Lock(AtomicU32);

impl Lock {
    /// Creates a free lock.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Self {
        Lock(AtomicU32::new(FREE))
    }

    /// Acquires the lock. Blocks the kernel thread. The holder must not switch.
    pub fn lock(&self) {
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

    /// Releases the lock.
    pub fn unlock(&self) {
        if self.0.swap(FREE, Ordering::Release) == AWAITED {
            futex(&self.0, libc::FUTEX_WAKE, 1);
        }
        if let Some((_, end)) = STILL.get() {
            end();
        }
    }

    /// Runs `f` with the lock held, and releases the lock even if `f` unwinds.
    pub fn with<R>(&self, f: impl FnOnce() -> R) -> R {
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

/// Calls futex(2) without changing errno.
fn futex(word: &AtomicU32, operation: i32, value: u32) {
    // SAFETY: the word is live, and neither operation takes a timeout.
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
    fn critical_sections_exclude_each_other() {
        let counter = Counter(Lock::new(), UnsafeCell::new(0));
        std::thread::scope(|s| {
            for _ in 0..4 {
                s.spawn(|| {
                    for n in 0..20_000 {
                        let counter = &counter;
                        counter.0.with(|| {
                            // SAFETY: the lock is held.
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
    fn waiter_sleeps_while_the_lock_is_held() {
        let (lock, (send_tid, receive_tid)) = (&Lock::new(), mpsc::channel());
        std::thread::scope(|s| {
            lock.lock();
            s.spawn(move || {
                // SAFETY: gettid takes no arguments and cannot fail.
                send_tid
                    .send(unsafe { libc::syscall(libc::SYS_gettid) })
                    .expect("the receiver is alive");
                lock.with(|| ());
            });
            let stat = format!(
                "/proc/self/task/{}/stat",
                receive_tid.recv().expect("the waiter sends its ID")
            );
            // A spinning waiter never reaches state S (sleeping); proc_pid_stat(5).
            while !std::fs::read_to_string(&stat).expect("the waiter is alive").contains(") S ") {
                std::thread::yield_now();
            }
            lock.unlock();
        });
    }
}
