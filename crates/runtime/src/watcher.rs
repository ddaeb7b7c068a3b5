//! The watcher: finds kernel threads that sleep in the kernel with their VP, and calls a spare for it.
//!
//! One kernel thread of its own, for event sources that do not tell by themselves. It looks at each VP's number of switches; only one
//! that stands still costs more.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::carrier::KernelThread;
use crate::instance::Instance;

/// Between two looks while a VP runs.
const PERIOD: Duration = Duration::from_micros(100);
/// Between two looks while none does, at most.
const LONGEST: Duration = Duration::from_millis(5);

/// Until the instance stops.
pub(crate) fn watch(instance: &Arc<Instance>) {
    // SAFETY: integers only: as `kernel_thread`.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
    let mut seen = vec![0; instance.vps.len()];
    let mut period = PERIOD;
    while !instance.stopped() {
        std::thread::sleep(period);
        let mut awake = false;
        for (vp, seen) in instance.vps.iter().zip(&mut seen) {
            if vp.idle.word.is_sleeping() {
                continue;
            }
            awake = true;
            let switches = vp.counters.switches.load(Ordering::Relaxed);
            if std::mem::replace(seen, switches) == switches
                && let Some(carrier) = vp.carried_by()
                && carrier.is_blocked()
            {
                crate::handoff::hand_over(instance, carrier);
            }
        }
        period = if awake { PERIOD } else { (period * 2).min(LONGEST) };
    }
}

impl KernelThread {
    /// Whether it sleeps in the kernel outside the runtime. Out of date at once.
    pub(crate) fn is_blocked(&self) -> bool {
        self.slot.is_open() && self.watched.as_ref().is_some_and(|w| w.sleeps())
    }
}
