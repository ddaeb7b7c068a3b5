//! Requests for a carrier of a VP that has none.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::handoff::barrier;
use crate::handoff::slot::{self, NO_PRIORITY};
use crate::pool::kernel::{Kernel, NOT_CALLED};
use crate::pool::ready_list::Pool;

impl Kernel {
    /// P0's `set_concurrency`: how many unbound kernel threads the pool keeps from now on. Those
    /// too many end.
    pub fn set_concurrency(&self, n: usize) {
        self.concurrency.store(n, Ordering::Relaxed);
        // It lingers, ends, and wakes the next one if there are still too many.
        self.wake_one();
    }

    /// Has `vp`, which nobody carries, carried by a kernel thread of the pool, or a new one.
    ///
    /// # Errors
    /// `WouldBlock`: the limit of kernel threads is reached; else what the kernel says. The VP is
    /// then nobody's, as before.
    pub fn resume(self: &Arc<Kernel>, vp: u32, priority: Option<u8>) -> io::Result<()> {
        let mut pool = self.lock();
        if pool.available() <= pool.ready.len() {
            self.start(&mut pool)?;
        }
        pool.push(slot::token(vp), priority);
        drop(pool);
        self.start_watchdog();
        self.wake_one();
        Ok(())
    }

    /// As [`resume`](Kernel::resume), but async-signal-safe: it starts no kernel thread. The next
    /// one that is in the pool, or comes there, takes `vp`. A thread that puts a VP down comes to
    /// the pool, and one stays there as long as the source reports anything, or
    /// [`set_concurrency`](Kernel::set_concurrency) requires it; the last one to leave the pool for
    /// a VP, while another VP has no carrier, starts a successor. So there is a next one, unless no
    /// kernel thread is to be had.
    pub fn call(&self, vp: u32, priority: Option<u8>) {
        self.leave_called(vp, priority);
        self.wake_one();
    }

    /// As [`call`](Kernel::call), without a wake-up: the caller itself goes to the pool.
    pub(crate) fn leave_called(&self, vp: u32, priority: Option<u8>) {
        // Release: with the swap in `take_called`.
        self.called[vp as usize].store(priority.map_or(NO_PRIORITY, i32::from), Ordering::Release);
    }

    /// What was [`call`](Kernel::call)ed is ready.
    pub(crate) fn take_called(&self, pool: &mut Pool) {
        for (vp, called) in (0u32..).zip(&self.called) {
            if called.load(Ordering::Relaxed) != NOT_CALLED {
                let priority = called.swap(NOT_CALLED, Ordering::Acquire);
                pool.push(slot::token(vp), u8::try_from(priority).ok());
            }
        }
    }

    /// Sees to it that somebody can take the VP of a kernel thread that is about to be away. False:
    /// no kernel thread is to be had.
    #[must_use]
    pub fn prepare(self: &Arc<Kernel>) -> bool {
        let mut pool = self.lock();
        if pool.dismissed {
            return false;
        }
        if !self.has_barrier {
            self.report_no_barrier();
            return false;
        }
        pool.available() > pool.ready.len()
            || self.start(&mut pool).inspect_err(|e| self.exhausted(e)).is_ok()
    }

    /// Reports once that no hand-off is safe here.
    #[cold]
    fn report_no_barrier(&self) {
        if !self.reported_no_barrier.swap(true, Ordering::Relaxed)
            && let Err(refused) = barrier::probe()
        {
            eprintln!(
                "kumihimo: `blocking` holds its virtual processor up here, since no hand-off is safe: {refused}"
            );
        }
    }
}
