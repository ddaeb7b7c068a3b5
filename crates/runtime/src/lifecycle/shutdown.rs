//! The end of a runtime.
//!
//! 1. Nothing can be spawned any more.
//! 2. What lives is cancelled.
//! 3. Up to the grace time it may unwind and end.
//! 4. The VPs stop; what still waits is marked ABANDONED, so that no late waker queues it.
//! 5. No foreign thread finds the instance any more.
//! 6. Its kernel threads end; one that is held by a microprocess that never waits, or inside
//!    `blocking`, is left behind with the instance. What the VPs keep for themselves (slots,
//!    regions) returns to the process's pools when the instance is dropped, which the last of these
//!    kernel threads does.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::lifecycle::suspend;
use crate::memory::pool;
use crate::microprocess::waiter::{Waiter, Who};
use crate::process::futex;
use crate::scheduler::instance::Instance;
use crate::trace_hooks;
use crate::wait::cancel;

/// How long the kernel threads get to end after the VPs were told to stop, while microprocesses
/// live that may hold them.
const THREADS_GRACE: Duration = Duration::from_millis(500);

/// All six steps. Returns how many microprocesses were left.
pub(crate) fn end(instance: &Arc<Instance>) -> u64 {
    instance.end();
    cancel_all(instance);
    let deadline = Instant::now() + instance.settings.grace;
    let mut pause = Duration::from_micros(20);
    while instance.living() != 0 && Instant::now() < deadline {
        futex::nap(Instant::now() + pause);
        pause = (pause * 2).min(Duration::from_millis(5));
        // Again: what was masked, or began just before step 1.
        cancel_all(instance);
    }
    let left = instance.living();
    stop(instance);
    left
}

fn cancel_all(instance: &Instance) {
    let mut living = Vec::new();
    // Records are for ever: to look through those of a million that have ended takes a quarter of a
    // second.
    if instance.living() != 0 {
        collect(&mut living);
    }
    living.extend(instance.one_to_one_threads().into_iter().map(Waiter::of_foreign));
    for who in &living {
        cancel::request(who);
        // It cannot unwind while it is suspended.
        if let Who::Micro(who) = who.who() {
            let _ = suspend::resume(*who);
        }
    }
}

fn collect(living: &mut Vec<Waiter>) {
    // Collected first: waking takes other locks than the list's.
    pool::for_each(|mp| {
        let who = mp.reference();
        if who.is_alive() {
            living.push(Waiter::of(who));
        }
    });
}

/// Steps 4 to 6.
pub(crate) fn stop(instance: &Arc<Instance>) {
    instance.stop();
    let kernel = &instance.kernel;
    // Once nothing lives, nothing holds a kernel thread: each ends as soon as it gets a core. The
    // count of bound ones lags behind: a microprocess can end elsewhere before the kernel thread
    // that it left has taken itself off the count.
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
