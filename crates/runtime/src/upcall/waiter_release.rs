//! Release of the threads that wait for their turn on a stalled VP ([`crate::priority::turn_wait`]
//! has the state).

use std::sync::atomic::Ordering;

use kumihimo_events::preempt::Means;

use crate::microprocess::record::Mp;
use crate::priority::turn_wait::Seen;
use crate::scheduler::instance::Instance;

impl Instance {
    /// Decides whether a returning thread should stop waiting for VP `index`, and releases the
    /// other waiters if so.
    ///
    /// The wait ends if the VP should switch and does not. Either the VP is stalled and not idle
    /// ([`Kernel::is_vp_stalled`](kumihimo_events::Kernel::is_vp_stalled)). Or the running
    /// microprocess should give way and does not: it may spin, where it cannot be interrupted, for
    /// a lock that a waiter holds. A VP that merely runs another microprocess, or sleeps for a
    /// moment, does not end the wait. The waiter would compute beside it, on more kernel threads
    /// than there are VPs, and the VPs' own threads would get a core even more rarely.
    ///
    /// Called by one of the waiters, `mp`. Async-signal-safe.
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
