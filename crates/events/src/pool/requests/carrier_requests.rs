//! Requests for a carrier of a VP that has none.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::handoff::barrier;
use crate::handoff::slot;
use crate::pool::kernel::Kernel;
use crate::pool::ready_list::Pool;

impl Kernel {
    /// Sets the number of unbound kernel threads that the pool keeps (P0: `set_concurrency`).
    /// Surplus threads end.
    pub fn set_concurrency(&self, n: usize) {
        self.concurrency.store(n, Ordering::Relaxed);
        // The woken thread lingers, ends, and wakes the next surplus thread.
        self.wake_one();
    }

    /// Requests a carrier for `vp`, which has none: a kernel thread of the pool, or a new one.
    ///
    /// # Errors
    /// `WouldBlock` if the limit of kernel threads is reached, otherwise the error of starting a
    /// thread. `vp` then has no carrier, as before.
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

    /// As [`resume`](Kernel::resume), but async-signal-safe: starts no kernel thread. The next
    /// thread that is in the pool, or enters it, takes `vp`.
    ///
    /// A next thread exists unless no kernel thread can be started. A thread that puts its VP down
    /// enters the pool. One thread stays there as long as the source reports events, or
    /// [`set_concurrency`](Kernel::set_concurrency) requires it. The last thread that leaves the
    /// pool for a VP, while another VP has no carrier, starts a successor.
    pub fn call(&self, vp: u32, priority: Option<u8>) {
        self.leave_called(vp, priority);
        self.wake_one();
    }

    /// Announces that the calling kernel thread is about to park `vp`, which it carries. The caller
    /// looks for work once more, and then calls [`KernelThread::park_vp`] or
    /// [`cancel_parking`](Kernel::cancel_parking).
    ///
    /// [`KernelThread::park_vp`]: crate::KernelThread::park_vp
    pub fn begin_parking(&self, vp: u32) {
        self.park_words[vp as usize].begin();
    }

    /// Reverts [`begin_parking`](Kernel::begin_parking), because there is work.
    pub fn cancel_parking(&self, vp: u32) {
        self.park_words[vp as usize].cancel();
    }

    /// Requests a carrier for `vp` if it is parked. The caller has stored work for the VP and
    /// passed a full fence. As [`call`](Kernel::call) otherwise. Async-signal-safe.
    #[inline]
    pub fn unpark(&self, vp: u32) {
        if self.park_words[vp as usize].request() {
            self.call(vp, None);
        }
    }

    /// Returns whether `vp` is parked. The result may be out of date.
    #[must_use]
    pub fn is_parked(&self, vp: u32) -> bool {
        self.park_words[vp as usize].is_parked()
    }

    /// As [`call`](Kernel::call), without a wake-up: the caller itself enters the pool.
    pub(crate) fn leave_called(&self, vp: u32, priority: Option<u8>) {
        self.carriers.call(vp, priority);
    }

    /// Moves the VPs that were [`call`](Kernel::call)ed to the ready list.
    pub(crate) fn take_called(&self, pool: &mut Pool) {
        self.carriers.take_called(|token, priority| pool.push(token, priority));
    }

    /// Ensures that a spare can take the VP of a kernel thread that is about to block. Returns
    /// false if no kernel thread can be started.
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

    /// Reports once that no hand-off is safe on this machine.
    #[cold]
    fn report_no_barrier(&self) {
        if !self.reported_no_barrier.swap(true, Ordering::Relaxed)
            && let Err(refused) = barrier::probe()
        {
            eprintln!(
                "kumihimo: `blocking` holds its virtual processor up, since no hand-off is safe on this machine: {refused}"
            );
        }
    }
}
