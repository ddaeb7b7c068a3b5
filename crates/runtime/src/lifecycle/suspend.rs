//! A microprocess runs no further until it is resumed (P0, section 5), asked for from anywhere.
//!
//! The request is a bit in its state word ([`crate::microprocess::state`]). A waiting one may go on
//! waiting; a runnable one is found by the carrier that would switch to it, and *suspended*: it is
//! in no queue then, and the resuming thread queues it. A running one is interrupted, as for a
//! change of its priority, and suspended when it has left its stack: so never inside the runtime,
//! and with none of its locks. One that is blocked in the kernel is suspended when it comes back to
//! a VP.
//!
//! That it no longer runs must be certain. A carrier that switches announces the next microprocess
//! and then looks at the bit; the suspending thread sets the bit, has every core pass a barrier
//! (membarrier), and then looks at what is announced or shown: one of the two sees the other. So a
//! microprocess that is neither after that is queued, waits or is suspended, and will be suspended
//! before it runs.

use std::time::{Duration, Instant};

use kumihimo_events::barrier;
use kumihimo_events::sched::Event;
use kumihimo_policy::Why;
use kumihimo_queue::Origin;

use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::state::{Phase, Resume, Suspend};
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::{self, Instance};
use crate::scheduler::thread_place;
use crate::scheduler::vp::Vp;
use crate::trace_hooks;
use crate::wait::sleep;

/// How long `suspend` waits for the microprocess to stop.
pub(crate) const STOP_TIMEOUT: Duration = Duration::from_secs(1);
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(1);
/// So many looks in a row, over half a millisecond, that find it asleep in the kernel: else it may
/// be there for its interruption.
const ASLEEP: u32 = 6;

/// What became of a request to suspend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suspended {
    /// It runs no more.
    Now,
    /// It was suspended before.
    Already,
    /// It is blocked in the kernel, or waits there for its turn, and will stop when it comes back.
    OnReturn,
    /// It has not come to where it can stop: it is in the C library all the time, say, or a lean
    /// one that never enters the runtime.
    Asked,
    /// It has ended.
    Gone,
}

/// Requests a microprocess to stop. Does not wait.
pub(crate) fn ask(who: Ref) -> Suspend {
    let asked = who.mp.state.request_suspend(who.generation);
    if asked == Suspend::Asked && barrier::probe().is_ok() {
        barrier::heavy();
    }
    asked
}

pub(crate) fn suspend(who: Ref) -> Suspended {
    match ask(who) {
        Suspend::Gone => Suspended::Gone,
        Suspend::Already => Suspended::Already,
        Suspend::Waits => Suspended::Now,
        Suspend::Asked => await_stop(who),
    }
}

/// Waits until a microprocess that was asked to stop has stopped, for a second at most. Blocks the
/// caller.
pub(crate) fn await_stop(who: Ref) -> Suspended {
    let deadline = Instant::now() + STOP_TIMEOUT;
    let (mut pause, mut told, mut asleep) = (FIRST_PAUSE, None, 0);
    loop {
        let seen = instance::visit(|instance| {
            instance.map(|instance| whereabouts(instance, who, &mut told))
        });
        asleep = if let Some(Whereabouts::InTheKernel) = seen { asleep + 1 } else { 0 };
        match seen {
            None | Some(Whereabouts::Stopped) => return Suspended::Now,
            Some(Whereabouts::Gone) => return Suspended::Gone,
            Some(Whereabouts::InTheKernel) if asleep == ASLEEP => return Suspended::OnReturn,
            Some(_) if Instant::now() >= deadline => return Suspended::Asked,
            Some(_) => {}
        }
        // A microprocess lets others have its virtual processor meanwhile.
        sleep::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Where one is that was asked to stop.
enum Whereabouts {
    Stopped,
    Gone,
    Runs,
    InTheKernel,
}

/// `told`: where it was last, and heard of it. Back from the kernel, it is told again.
fn whereabouts(
    instance: &Instance,
    who: Ref,
    told: &mut Option<(u32, Option<u32>)>,
) -> Whereabouts {
    if !who.is_alive() {
        return Whereabouts::Gone;
    }
    if who.mp.state.phase() != Phase::Live || !who.mp.state.is_suspended() {
        return Whereabouts::Stopped;
    }
    let Some(on) = thread_place::on_or_announced(instance, who) else {
        return Whereabouts::Stopped;
    };
    // One that is back from the kernel and waits for its turn has stopped when it is suspended, and
    // no sooner: a turn may be on its way.
    if told.replace((on.index, on.vp)) != Some((on.index, on.vp)) {
        match on.vp {
            Some(vp) => instance.kernel.raise(vp, Event::Changed),
            None => instance.kernel.call_back(on.index),
        }
    }
    if on.call.is_some_and(|call| call >= 0) { Whereabouts::InTheKernel } else { Whereabouts::Runs }
}

/// Suspends the caller. Returns when it was resumed. A kernel thread that is no microprocess goes
/// on at once: false.
pub(crate) fn suspend_self() -> bool {
    let Some(carrier) = Carrier::obtain().filter(Carrier::is_running) else { return false };
    let Some(mp) = carrier.running() else { return false };
    let _ = mp.state.request_suspend(mp.state.generation());
    carrier.leave(AfterSwitch::Suspend);
    true
}

/// Lets a microprocess run again. False: it was not suspended, or has ended.
pub(crate) fn resume(who: Ref) -> Resume {
    let resumed = who.mp.state.resume(who.generation);
    if resumed == Resume::Queue {
        queue(who.mp);
    }
    resumed
}

/// One that was suspended is runnable: like one that was woken from outside.
fn queue(mp: &'static Mp) {
    use std::sync::atomic::Ordering::Relaxed;
    if mp.sticky.parker.wake() {
        return;
    }
    instance::visit(|instance| {
        // Without a runtime it is one that was left behind.
        if let Some(instance) = instance {
            instance.inject(usize::from(mp.home.load(Relaxed)), mp);
        }
    });
}

impl Carrier {
    /// Whether the running microprocess has to be suspended.
    #[inline]
    pub(crate) fn must_suspend(&self) -> bool {
        self.running().is_some_and(|mp| mp.state.is_suspended())
    }

    /// As a switch to `next`, which turned out to be suspended and is the caller's: to another one
    /// in its place.
    #[cold]
    #[inline(never)]
    pub(crate) fn switch_to_another(self, next: &'static Mp, after: AfterSwitch) -> Carrier {
        let (mut next, mut after) = (Some(next), after);
        let me = self.running();
        // In a loop: they may be many.
        loop {
            let vp = self.vp();
            // Rebalancing may hand away queued microprocesses, and the context of one that was
            // queued early is not saved yet. If levels have come to differ since, this VP was asked
            // to take a step.
            let is_queued_early = after == AfterSwitch::Nothing && me.is_some();
            match next {
                None => return self.switch_to_idle(after),
                // Queued before its switch, and nobody else is there: it runs on, unless it is to
                // be suspended itself.
                Some(mp) if me.is_some_and(|me| std::ptr::eq(me, mp)) => {
                    self.kernel_thread().announce(mp);
                    if !mp.state.is_suspended() {
                        vp.level.set(mp.level.get());
                        self.kernel_thread().show(mp);
                        vp.publish_next(mp);
                        return self;
                    }
                    after = AfterSwitch::Suspend;
                }
                Some(mp) => {
                    self.kernel_thread().announce(mp);
                    if !mp.state.is_suspended() || !vp.try_suspend(mp) {
                        if !is_queued_early {
                            vp.publish_next(mp);
                        }
                        return self.switch_to_runnable(mp, after);
                    }
                }
            }
            if me.is_none() {
                // On the kernel thread's own stack, which looks for another one by itself: one that
                // waits elsewhere is handed the VP from there only.
                return self;
            }
            next = self.vp().pick();
        }
    }
}

impl Vp {
    /// Puts `mp`, which came from a queue, aside. False: it was resumed meanwhile, and is the
    /// caller's as before.
    pub(crate) fn try_suspend(&self, mp: &'static Mp) -> bool {
        // Recorded first: the resuming thread may have it run elsewhere at once.
        trace_hooks::held(&self.trace, mp);
        let is_suspended = mp.state.commit_suspend();
        if !is_suspended {
            trace_hooks::ready(&self.trace, self.index, mp, mp.level.get(), Why::Woken);
        }
        is_suspended
    }

    /// A microprocess that was to be suspended has left its stack.
    pub(crate) fn suspend_after_switch(&self, mp: &'static Mp) {
        if !mp.state.commit_suspend() {
            // Resumed meanwhile.
            self.make_ready(mp, Why::Woken, Origin::Wake);
        }
    }
}
