//! The end of a runtime, in six steps.
//!
//! 1. Further spawns are refused.
//! 2. All living microprocesses are cancelled.
//! 3. They get up to the grace time to unwind and end.
//! 4. The VPs stop. Microprocesses that still wait are marked ABANDONED, so that no late waker
//!    queues them.
//! 5. The instance is withdrawn, so that no foreign thread finds it.
//! 6. The kernel threads end. A thread that a microprocess occupies without ever waiting, or inside
//!    `blocking`, is left behind with the instance. The VPs' own caches (slots, regions) return to
//!    the process's pools when the instance is dropped, which the last of these kernel threads
//!    does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lifecycle::suspend;
use crate::memory::pool;
use crate::microprocess::waiter::{Waiter, Who};
use crate::process::futex;
use crate::scheduler::instance::Instance;
use crate::trace_hooks;
use crate::wait::cancel;

/// Time that the kernel threads get to end after the VPs were stopped, while living microprocesses
/// may occupy them.
const THREADS_GRACE: Duration = Duration::from_millis(500);

/// Performs all six steps. Returns the number of microprocesses that were left.
pub(crate) fn end(instance: &Arc<Instance>) -> u64 {
    instance.end();
    cancel_all(instance);
    let deadline = Instant::now() + instance.settings.grace;
    let mut pause = Duration::from_micros(20);
    while instance.living() != 0 && Instant::now() < deadline {
        futex::nap(Instant::now() + pause);
        pause = (pause * 2).min(Duration::from_millis(5));
        // Repeated for microprocesses that were masked, or began just before step 1.
        cancel_all(instance);
    }
    let left = instance.living();
    stop(instance);
    left
}

fn cancel_all(instance: &Instance) {
    let mut living = Vec::new();
    // Records live for ever: a scan of those of a million ended microprocesses takes a quarter of a
    // second.
    if instance.living() != 0 {
        collect(&mut living);
    }
    living.extend(instance.one_to_one_threads().into_iter().map(Waiter::of_foreign));
    for who in &living {
        cancel::request(who);
        // A microprocess cannot unwind while it is suspended.
        if let Who::Micro(who) = who.who() {
            let _ = suspend::resume(*who);
        }
    }
}

fn collect(living: &mut Vec<Waiter>) {
    // Collected first, because waking takes other locks than the list's.
    pool::for_each(|mp| {
        let who = mp.reference();
        if who.is_alive() {
            living.push(Waiter::of(who));
        }
    });
}

/// Performs steps 4 to 6.
pub(crate) fn stop(instance: &Arc<Instance>) {
    instance.stop();
    let kernel = &instance.kernel;
    // Without living microprocesses no kernel thread is occupied, and each ends as soon as it gets
    // a core. The count of bound threads lags behind: a microprocess can end elsewhere before the
    // kernel thread that it left has updated the count.
    let held = || if instance.living() == 0 { 0 } else { kernel.bound() };
    while kernel.await_end(held, THREADS_GRACE) != 0 && instance.living() == 0 {}
    if instance.living() != 0 {
        pool::for_each(|mp| {
            let _ = mp.state.abandon();
        });
    }
    instance.retire();
    kernel.join();
    if kernel.counts().threads == 0 {
        for vp in &instance.vps {
            vp.pool.clear();
            vp.regions.clear();
            vp.timers().clear();
        }
    }
    if let Some(session) = &instance.trace {
        trace_hooks::finish(session);
    }
}
