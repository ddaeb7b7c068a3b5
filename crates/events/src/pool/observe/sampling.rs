//! Stack samples of the kernel threads of the pool, for a dump of all threads and for profiles.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::linux::watch;
use crate::pool::kernel::Kernel;
use crate::preempt::cpu_profiler::CpuProfiler;
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
                if is_there() {
                    self.doorbells.send_to(index, slot, tid, value)
                } else {
                    Err(gone())
                }
            }),
            Means::Clock => sample_running(Some(tid), |_| {
                is_there().then(|| self.doorbells.ring(index, slot)).ok_or_else(gone)
            }),
        }
    }

    /// Starts to sample the pool's kernel threads, each on average after `interval` of its CPU
    /// time, once [`follow`](Kernel::follow) has been called. `places` is the number of samples
    /// between two calls of [`CpuProfiler::take`] for which there is room.
    ///
    /// # Errors
    /// `ResourceBusy` if a profiler runs in this process already; `Unsupported` if the program has
    /// taken the signal; otherwise the error of sigaction(2).
    pub fn profile_cpu(&self, interval: Duration, places: usize) -> io::Result<CpuProfiler> {
        let (signal, has_clocks) = self.doorbells.prepare_profile()?;
        CpuProfiler::start(signal, has_clocks, interval, places).ok_or_else(|| {
            let text = "the CPU time of this process is being profiled already";
            io::Error::new(io::ErrorKind::ResourceBusy, text)
        })
    }

    /// Has `profiler` follow the threads that the pool has now.
    ///
    /// # Errors
    /// Those of [`CpuProfiler::follow`].
    pub fn follow(&self, profiler: &mut CpuProfiler) -> io::Result<()> {
        let tids = self.slots().map(|slot| slot.tid.load(Ordering::Acquire));
        profiler.follow(tids.filter(|tid| *tid != 0))
    }
}
