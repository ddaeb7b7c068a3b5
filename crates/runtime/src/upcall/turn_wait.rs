//! How long a thread waits for its turn on a VP: until the VP is held up
//! ([`crate::priority::turn_wait`]).

use std::sync::atomic::Ordering;

use kumihimo_events::preempt::Means;

use crate::microprocess::record::Mp;
use crate::priority::turn_wait::Seen;
use crate::scheduler::instance::Instance;

impl Instance {
    /// Whether VP number `index` makes no switch although it should: it is held up
    /// ([`Kernel::is_vp_stalled`](kumihimo_events::Kernel::is_vp_stalled)), not idle; or the
    /// running microprocess is to give way and does not, since it may spin for what a waiter holds
    /// where it cannot be interrupted. That another one has its turn is no reason, nor a moment's
    /// sleep: the waiter would compute beside it, on more kernel threads than there are VPs, so
    /// that the VPs' own get a core more rarely still.
    ///
    /// If so, all others that wait for it go on, too. By one of them, `mp`. Async-signal-safe.
    pub(crate) fn turn_wait_is_over(&self, index: usize, mp: &Mp) -> bool {
        self.keep_time_if_nobody_does();
        let (vp, kernel) = (&self.vps[index], &self.kernel);
        let suspended = mp.state.is_suspended();
        let is_over = vp.turn_wait.one_looks(|| {
            let carrier =
                kernel.carrier(index as u32).map_or(0, |slot| slot.tid.load(Ordering::Relaxed));
            let should = kernel.preemption() == Means::Off || kernel.is_raised(index as u32);
            let switches = vp.counters.switches.load(Ordering::Relaxed);
            let seen = Seen { now: self.now(), switches, carrier, should };
            vp.turn_wait.is_over(seen, suspended, || {
                !vp.idle.cell.is_sleeping() && kernel.is_vp_stalled(index as u32)
            })
        });
        if is_over && !suspended {
            kernel.release_waiters(index as u32);
        }
        is_over
    }
}
