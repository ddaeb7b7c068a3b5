//! Suspension: stops a microprocess until it is resumed (paper P0, section 5), on request of any
//! thread.
//!
//! The request is a bit in the state word ([`crate::microprocess::protocol::state`]):
//! - A waiting microprocess may continue to wait.
//! - A runnable microprocess is detected by the carrier that would switch to it, and is then
//!   *suspended*. It is in no queue until the resuming thread queues it.
//! - A running microprocess is interrupted, as for a change of its priority, and is suspended after
//!   it has left its stack. So it is never suspended inside the runtime, and holds none of the
//!   runtime's locks.
//! - A microprocess that is blocked in the kernel is suspended when it returns to a VP.
//!
//! The suspending thread needs certainty that the microprocess has stopped. A carrier that
//! switches first announces the next microprocess and then checks the bit. The suspending thread
//! sets the bit, executes a barrier on every core (membarrier(2)), and then checks what is
//! announced or shown. So at least one of the two observes the other. A microprocess that is
//! neither announced nor shown after that is queued, waits or is suspended, and will be suspended
//! before it runs.

use std::time::{Duration, Instant};

use kumihimo_events::barrier;
use kumihimo_events::sched::Event;
use kumihimo_policy::Why;
use kumihimo_queue::Origin;

use crate::kernel_thread::gs_record::current_mp;
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::protocol::state::{Phase, Resume, Suspend};
use crate::microprocess::record::{Mp, Ref};
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
/// Number of consecutive checks, over half a millisecond, that must find the microprocess asleep in
/// the kernel. A shorter sleep may be part of its interruption.
const ASLEEP: u32 = 6;

/// Outcome of a request to suspend.
///
/// # Examples
///
/// ```
/// use kumihimo::thread::{self, Suspended};
///
/// let handle = thread::spawn(thread::park);
/// let thread = handle.thread().clone();
/// assert_eq!(thread.suspend()?, Suspended::Now);
/// assert_eq!(thread.suspend()?, Suspended::Already);
///
/// thread.resume()?;
/// thread.unpark();
/// handle.join().unwrap();
/// assert_eq!(thread.suspend()?, Suspended::Gone);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Suspended {
    /// The microprocess has stopped.
    Now,
    /// The microprocess was suspended before.
    Already,
    /// The microprocess is blocked in the kernel, or waits there for its turn, and stops when it
    /// returns.
    OnReturn,
    /// The microprocess has not reached a place where it can stop. It may run in the C library all
    /// the time, or be a lean microprocess that never enters the runtime.
    Asked,
    /// The microprocess has ended.
    Gone,
}

/// Requests a microprocess to stop. Does not wait for it.
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

/// Waits until a microprocess that was asked to stop has stopped, for at most a second. Blocks the
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
        // `sleep` lets other microprocesses run on the caller's VP meanwhile.
        sleep::sleep(pause);
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// State of a microprocess that was asked to stop.
enum Whereabouts {
    Stopped,
    Gone,
    Runs,
    InTheKernel,
}

/// Determines the state. `told` is the place (thread and VP) to which the request was last
/// delivered. If the microprocess has moved, for example back from the kernel, the request is
/// delivered again.
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
    // A microprocess that is back from the kernel and waits for its turn may be about to get a VP,
    // so it counts as stopped only once it is suspended.
    if told.replace((on.index, on.vp)) != Some((on.index, on.vp)) {
        match on.vp {
            Some(vp) => instance.kernel.raise(vp, Event::Changed),
            None => instance.kernel.call_back(on.index),
        }
    }
    if on.call.is_some_and(|call| call >= 0) { Whereabouts::InTheKernel } else { Whereabouts::Runs }
}

/// Suspends the caller, and returns true after it was resumed. Returns false at once on a kernel
/// thread that runs no microprocess.
pub(crate) fn suspend_self() -> bool {
    if let Some(carrier) = Carrier::obtain() {
        let Some(mp) = carrier.running() else { return false };
        let _ = mp.state.request_suspend(mp.state.generation());
        carrier.leave(AfterSwitch::Suspend);
        return true;
    }
    let Some(mp) = current_mp().filter(|mp| mp.sticky.is_bound.get()) else { return false };
    let _ = mp.state.request_suspend(mp.state.generation());
    // A bound microprocess stops when it enters the runtime.
    drop(Carrier::regain());
    true
}

/// Lets a suspended microprocess run again. Reports if it was not suspended, or has ended.
pub(crate) fn resume(who: Ref) -> Resume {
    let resumed = who.mp.state.resume(who.generation);
    if resumed == Resume::Queue {
        queue(who.mp);
    }
    resumed
}

/// Makes a suspended microprocess runnable, as if woken from outside.
fn queue(mp: &'static Mp) {
    use std::sync::atomic::Ordering::Relaxed;
    if mp.sticky.parker.wake() {
        return;
    }
    instance::visit(|instance| {
        // Without a runtime, the microprocess was left behind and never runs again.
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

    /// Switches to another microprocess, because `next` turned out to be suspended. The caller
    /// holds `next` exclusively.
    #[cold]
    #[inline(never)]
    pub(crate) fn switch_to_another(self, next: &'static Mp, after: AfterSwitch) -> Carrier {
        let (mut next, mut after) = (Some(next), after);
        let me = self.running();
        // A loop, because many queued microprocesses may be suspended.
        loop {
            let vp = self.vp();
            // Rebalancing may hand away queued microprocesses, and the context of a microprocess
            // that was queued early is not saved yet. If levels have come to differ since, this VP
            // was asked to take a scheduling step anyway.
            let is_queued_early = after == AfterSwitch::Nothing && me.is_some();
            match next {
                None => return self.switch_to_idle(after),
                // The running microprocess was queued early, and no other one is runnable: it runs
                // on, unless it is to be suspended itself.
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
                // On the kernel thread's own stack, whose loop picks another microprocess. Only
                // that loop can hand the VP to a microprocess that waits on another kernel thread.
                return self;
            }
            next = self.vp().pick();
        }
    }
}

impl Vp {
    /// Suspends `mp`, which came from a queue. Returns false if it was resumed meanwhile; the
    /// caller then still holds it.
    pub(crate) fn try_suspend(&self, mp: &'static Mp) -> bool {
        // Traced first, because the resuming thread may have it run elsewhere at once.
        trace_hooks::held(&self.trace, mp);
        let is_suspended = mp.state.commit_suspend();
        if !is_suspended {
            trace_hooks::ready(&self.trace, self.index, mp, mp.level.get(), Why::Woken);
        }
        is_suspended
    }

    /// Suspends a microprocess that has just left its stack.
    pub(crate) fn suspend_after_switch(&self, mp: &'static Mp) {
        if !mp.state.commit_suspend() {
            // Resumed meanwhile.
            self.make_ready(mp, Why::Woken, Origin::Wake);
        }
    }
}
