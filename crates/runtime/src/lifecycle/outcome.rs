//! The outcome of a microprocess: stored at its end, then taken by its handle or dropped.

use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread::Result as Outcome;

use crate::config::PanicHook;
use crate::lifecycle::join;
use crate::microprocess::record::Mp;
use crate::scheduler::instance;
use crate::wait::cancel;

/// Where the outcome of a microprocess belongs: at the top of its stack.
pub(crate) type Place<T> = *mut MaybeUninit<Outcome<T>>;

/// Stores the outcome of `mp`, or drops it if no handle is left.
///
/// # Safety
/// The caller is `mp`, which calls this once. `place` is where its handle will look.
#[cfg_attr(not(debug_assertions), inline(always))]
pub(crate) unsafe fn conclude<T>(mp: &'static Mp, place: Place<T>, outcome: Outcome<T>) {
    mp.panicked.set(outcome.as_ref().is_err_and(|payload| {
        // The hook of the runtime, not of the VP, which may have been taken over while the panic
        // was reported.
        let hook = || instance::visit(|i| i.and_then(|i| i.settings.on_panic.clone()));
        note_panic(&hook, payload.as_ref())
    }));
    // SAFETY: the caller's promise; the handle reads the outcome only after the join word has
    // become DONE.
    unsafe { place.write(MaybeUninit::new(outcome)) };
    if join::is_detached(mp) {
        // SAFETY: written above, and no handle is left to take it.
        unsafe { drop_in_place(mp, place) };
    }
}

/// Drops the outcome of a microprocess without a handle.
///
/// # Safety
/// The outcome is written, not dropped yet, and no handle will take it.
pub(crate) unsafe fn drop_in_place<T>(mp: &Mp, place: Place<T>) {
    // SAFETY: the caller's promise.
    drop_unwanted(|| unsafe { (*place).assume_init_drop() });
    mp.outcome_dropped.set(true);
}

/// Drops a result. Aborts if the drop panics, since no thread is left to receive the panic.
pub(crate) fn drop_unwanted(drop_it: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(drop_it)).is_err() {
        eprintln!(
            "kumihimo: the result of a detached microprocess panicked when it was dropped: aborting"
        );
        std::process::abort();
    }
}

/// Calls the hook for panics unless the payload is that of a cancellation. Returns whether it is a
/// panic.
#[cold]
pub(crate) fn note_panic(
    hook: &dyn Fn() -> Option<PanicHook>,
    payload: &(dyn std::any::Any + Send),
) -> bool {
    if payload.is::<cancel::Cancelled>() {
        return false;
    }
    if let Some(hook) = hook() {
        let guarded = catch_unwind(AssertUnwindSafe(|| hook(payload)));
        if guarded.is_err() {
            eprintln!("kumihimo: the runtime's on_panic hook panicked; ignored");
        }
    }
    true
}

/// Takes the outcome of `mp`.
///
/// # Safety
/// `spawn` returned `outcome` for the current life of `mp`; `join::wait` or `join::detach` returned
/// true; and this is the only call.
pub(crate) unsafe fn take<T>(mp: &'static Mp, outcome: *mut Outcome<T>) -> Outcome<T> {
    // SAFETY: DONE was observed with acquire, so the outcome is written. The slot is not reused
    // before `taken`.
    let outcome = unsafe { outcome.read() };
    join::taken(mp);
    outcome
}
