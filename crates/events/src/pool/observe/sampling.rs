//! Stack samples of the kernel threads of the pool, for a dump of all threads.

use std::sync::atomic::Ordering;

use crate::linux::watch;
use crate::pool::kernel::Kernel;
use crate::preempt::doorbell::Means;
use crate::preempt::thread_sampler::{StackSample, sample_running};

impl Kernel {
    /// Samples the stack of the pool's kernel thread `tid`, which runs in user mode, by the means
    /// of preemption. Returns `None` if the thread sleeps, has left the pool or got no core, or if
    /// preemption is off. Blocks the calling kernel thread for 200 ms at most.
    #[must_use]
    pub fn sample_stack(&self, tid: i32) -> Option<StackSample> {
        let (index, slot) = self.index_of(tid)?;
        let is_there = || slot.tid.load(Ordering::Relaxed) as i32 == tid && !watch::is_asleep(tid);
        let gone = || std::io::Error::from(std::io::ErrorKind::NotFound);
        match self.doorbells.means() {
            Means::Off => None,
            Means::Signal(_) => sample_running(None, |value| {
                if is_there() { self.doorbells.send_to(slot, tid, value) } else { Err(gone()) }
            }),
            Means::Clock => sample_running(Some(tid), |_| {
                is_there().then(|| self.doorbells.ring(index, slot)).ok_or_else(gone)
            }),
        }
    }
}
