//! Starter: the kernel thread that starts the spares.
//!
//! Starting a thread allocates memory. The allocator's lock may be held by a microprocess that was
//! preempted and waits for a VP, and a thread that leaves the pool is about to carry one. If it
//! started its successor itself, it could wait for the microprocess that waits for it. The starter
//! carries no VP and holds no lock while it allocates, so it may wait for any microprocess.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use kumihimo_arch::signal_mask;

use super::life::{AbortOnPanic, KERNEL_STACK};
use crate::pool::kernel::Kernel;
use crate::pool::ready_list::Pool;

impl Kernel {
    /// Requests one more kernel thread, which counts as waiting in the pool from now on. If the
    /// kernel refuses it, it no longer counts, and the starter prints why.
    ///
    /// # Errors
    /// `WouldBlock` if the limit of kernel threads is reached. Without a starter, which the kernel
    /// may have refused as well, the errors of [`start`](Kernel::start).
    pub(crate) fn request_start(self: &Arc<Kernel>, pool: &mut Pool) -> io::Result<()> {
        if pool.starter.is_none() {
            // The first request is that of the first carrier, before any microprocess runs.
            let kernel = self.clone();
            let builder =
                std::thread::Builder::new().name("kumihimo-start".into()).stack_size(KERNEL_STACK);
            match signal_mask::spawn_blocked(builder, move || kernel.start_spares()) {
                Ok(starter) => pool.starter = Some(starter),
                Err(_) => return self.start(pool),
            }
        }
        let index = self.reserve(pool)?;
        pool.requested.push(index);
        self.pending_starts.begin();
        self.requested.notify_one();
        Ok(())
    }

    /// Starts the requested kernel threads until the pool is dismissed, and returns their handles.
    fn start_spares(self: Arc<Kernel>) -> Vec<JoinHandle<()>> {
        let _abort = AbortOnPanic;
        let mut started = Vec::new();
        let mut pool = self.lock();
        loop {
            let Some(index) = pool.requested.pop() else {
                if pool.dismissed {
                    return started;
                }
                pool = self.requested.wait(pool).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let is_dismissed = pool.dismissed;
            drop(pool);
            let result = if is_dismissed {
                Err(io::Error::other("the runtime is ending"))
            } else {
                // Drop the handles of ended threads, so that the list does not grow with the number
                // of blocks.
                started.retain(|thread: &JoinHandle<()>| !thread.is_finished());
                self.spawn(index).map(|thread| started.push(thread))
            };
            pool = self.lock();
            self.pending_starts.end();
            self.is_short.store(result.is_err(), Ordering::Relaxed);
            if let Err(e) = result {
                self.cancel(&mut pool, index);
                if !is_dismissed {
                    let was_last = pool.available() == 0;
                    drop(pool);
                    self.exhausted(&e);
                    if was_last {
                        self.report_no_spare();
                    }
                    pool = self.lock();
                }
            }
        }
    }

    /// Reports to the user scheduler that no kernel thread is left in the pool, if threads wait for
    /// a VP.
    pub(crate) fn report_no_spare(&self) {
        if self.waiter_count.load(Ordering::Relaxed) != 0
            && let Some(scheduler) = self.user()
        {
            scheduler.no_spare();
        }
    }
}
