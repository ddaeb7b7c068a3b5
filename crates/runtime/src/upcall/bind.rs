//! Bound microprocesses: a kernel thread of its own for the rest of a microprocess's life, thrown
//! away after it.
//!
//! A program that changes its credentials, installs a filter or enters a namespace changes the
//! kernel thread. The runtime cannot undo such a change, so that thread serves nobody else from
//! then on. A bound microprocess is a sticky one ([`crate::upcall::sticky`]) that never returns to
//! a VP. The kernel schedules it, whatever levels exist. Only a suspension makes it wait for a VP,
//! on its own kernel thread.

use std::io;

use crate::kernel_thread::gs_record::{KernelThread, Standing, current_mp, standing};
use crate::microprocess::record::Mp;
use crate::microprocess::sticky_state::Reason;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::{self, Instance};
use crate::trace_hooks;
use crate::upcall::{handoff, sticky};

/// Gives the calling microprocess a kernel thread of its own, the one on which it runs. Does
/// nothing if it has one. Returns `None` outside of microprocesses.
///
/// Does not switch, unless the caller lost its VP while it was in the kernel and must wait for its
/// turn.
///
/// # Errors
/// `WouldBlock` if no other kernel thread can take over the caller's VP.
pub(crate) fn bind() -> Option<io::Result<()>> {
    let mp = current_mp()?;
    if mp.sticky.is_bound.get() {
        return Some(Ok(()));
    }
    if standing() == Standing::Bound {
        // Inside `blocking`, whose end sees the mark.
        mark(mp);
        return Some(Ok(()));
    }
    let Some(carrier) = Carrier::regain() else {
        // It became sticky, or was.
        mark(mp);
        mp.sticky.set_reason(Reason::Bound);
        return Some(Ok(()));
    };
    let kt: *const KernelThread = carrier.kernel_thread();
    // SAFETY: the caller's kernel thread, which it keeps from here on.
    let kt = unsafe { &*kt };
    Some(hand_vp_on(kt).map(|()| stay(kt, mp, carrier)))
}

/// Hands the VP of the caller's kernel thread to another one. Masked.
fn hand_vp_on(kt: &KernelThread) -> io::Result<()> {
    // SAFETY: the kernel thread carries the VP, which outlives its carriers.
    let trace = unsafe { &(*kt.vp()).trace };
    kt.events().leave_vp().map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => no_thread(),
        _ => error,
    })?;
    trace_hooks::blocked(trace);
    kt.detach_vp();
    Ok(())
}

/// Makes `mp`, the caller, sticky for good. The kernel thread has handed its VP on, and `carrier`
/// stands for the mask only.
fn stay(kt: &KernelThread, mp: &Mp, carrier: Carrier) {
    mark(mp);
    stick(kt, mp, carrier, Reason::Bound);
}

/// Makes `mp`, the caller, sticky, as [`stay`] does, for `reason`.
fn stick(kt: &KernelThread, mp: &Mp, carrier: Carrier, reason: Reason) {
    // Events that are pending concern the VP.
    let _ = carrier.release();
    sticky::begin(kt.instance(), kt, mp, reason);
}

/// Makes `mp`, the caller, sticky for `reason`, before it waits in the kernel. Returns false if no
/// other kernel thread can take over the VP.
pub(crate) fn stay_to_wait(mp: &Mp, carrier: Carrier, reason: Reason) -> bool {
    let kt: *const KernelThread = carrier.kernel_thread();
    // SAFETY: the caller's kernel thread, which it keeps from here on.
    let kt = unsafe { &*kt };
    if hand_vp_on(kt).is_err() {
        return false;
    }
    stick(kt, mp, carrier, reason);
    true
}

/// Ends `blocking` of a microprocess that was bound inside: it keeps its kernel thread, which
/// `carrier` stands for, and gives the VP away.
pub(crate) fn stay_after_blocking(kt: &KernelThread, mp: &Mp, carrier: Carrier) {
    if hand_vp_on(kt).is_err() {
        // The next kernel thread that returns to the pool takes the VP.
        handoff::give_away(kt);
    }
    stay(kt, mp, carrier);
}

/// Binds `mp`, the caller, after it has changed its kernel thread, which `carrier` stands for. The
/// VP is left to a waiting kernel thread: one that this one started would inherit the change.
/// Returns false if no kernel thread waits, and none is kept waiting.
pub(crate) fn stay_after_change(kt: &KernelThread, mp: &Mp, carrier: Carrier) -> bool {
    let can = instance::hears_of_sleeps() || kt.instance().kernel.has_spare();
    if can {
        handoff::give_away(kt);
        stay(kt, mp, carrier);
    } else {
        let _ = carrier.release();
    }
    can
}

/// Binds `mp`, the caller, which has just begun, if it was spawned so.
///
/// # Panics
/// If no kernel thread is left. `spawn` has checked that, so another thread took the last one.
#[inline]
pub(crate) fn bind_first(mp: &Mp) {
    if mp.sticky.is_bound.get() {
        mp.sticky.is_bound.set(false);
        if let Some(Err(error)) = bind() {
            panic!("a bound microprocess cannot begin: {error}");
        }
    }
}

/// Checks that a bound microprocess could begin now.
///
/// # Errors
/// As [`bind`].
pub(crate) fn check_room(instance: &Instance) -> io::Result<()> {
    if instance.kernel.prepare() { Ok(()) } else { Err(no_thread()) }
}

fn no_thread() -> io::Error {
    io::Error::new(
        io::ErrorKind::WouldBlock,
        "no kernel thread is left for a bound microprocess; raise KUMI_KERNEL_THREADS or ulimit -u",
    )
}

/// Makes `mp`, the caller, keep its kernel thread, which ends with it.
pub(crate) fn mark(mp: &Mp) {
    mp.sticky.is_bound.set(true);
    // SAFETY: a microprocess: GS is set. Nothing switches in between: it has no VP, or is masked.
    unsafe {
        let kt = KernelThread::begin_guard();
        kt.events().retire_after_use();
        kt.end_guard();
    }
}

/// Whether the calling microprocess has a kernel thread of its own. In debug builds, one that has
/// changed its kernel thread gets it here. May switch.
#[must_use]
pub fn is_bound() -> bool {
    if cfg!(debug_assertions) {
        drop(Carrier::regain());
    }
    current_mp().is_some_and(|mp| mp.sticky.is_bound.get())
}

/// Stops a bound microprocess, the caller or the interrupted one, until it is resumed. It waits for
/// a VP on its kernel thread, where the schedulers see that it is suspended, and gives the VP away.
pub(crate) fn stop_here(kt: &KernelThread, mp: &'static Mp) {
    kt.in_handler(|| {
        sticky::end(kt.instance(), kt, mp);
        handoff::await_turn(kt.instance(), mp);
        // SAFETY: a microprocess: GS is set.
        let kt = unsafe { KernelThread::begin_guard() };
        if kt.enter() {
            handoff::give_away(kt);
        }
        let _ = kt.unmask_quietly();
        sticky::begin(kt.instance(), kt, mp, Reason::Bound);
    });
}
