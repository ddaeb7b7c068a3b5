//! Calls that may block the kernel thread: the VP goes on elsewhere meanwhile.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

use crate::kernel_thread::gs_record::{KernelThread, Standing, set_standing};
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::record::Mp;
use crate::microprocess::wait_reason::Wait;
use crate::scheduler::carrier::Carrier;
use crate::trace_hooks;
use crate::upcall::bound;
use crate::wait::tracing_spans;

/// Runs `f`, which may block the kernel thread, while the VP goes on elsewhere with the other
/// microprocesses.
///
/// Blocks the kernel thread for as long as `f` does, and the microprocess with it; nobody else.
/// Inside, waiting on Kumihimo's own types blocks the kernel thread. On a foreign kernel thread, or
/// where no further kernel thread is to be had (limit reached; counted in the metrics), `f` simply
/// runs. It also simply runs in a sticky microprocess, which has no virtual processor to give away.
/// Not a cancellation point.
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    let _told = tracing_spans::WaitSpan::begin(Wait::Blocking);
    let Some(carrier) = Carrier::regain() else { return in_line(f) };
    let Some(mp) = carrier.running() else { return f() };
    let instance = carrier.vp().instance();
    if !instance.kernel.prepare() {
        instance.blocking_inline.fetch_add(1, Ordering::Relaxed);
        // Not masked while it runs.
        drop(carrier);
        return in_line(f);
    }
    lend(carrier, mp);
    // The microprocess must be back on a VP before anything unwinds through it.
    let outcome = catch_unwind(AssertUnwindSafe(f));
    take_back(mp);
    outcome.unwrap_or_else(|payload| resume_unwind(payload))
}

/// Runs the closure of `blocking` without a hand-off. Afterwards obeys a suspension or a call-back
/// that arrived in the meantime, as the return from a hand-off does.
fn in_line<R>(f: impl FnOnce() -> R) -> R {
    let outcome = f();
    drop(Carrier::regain());
    outcome
}

fn lend(carrier: Carrier, mp: &'static Mp) {
    let vp = carrier.vp();
    vp.note_wait(mp, Wait::Blocking.encode());
    vp.account_for(mp);
    trace_hooks::lent(&vp.trace);
    set_standing(Standing::Bound);
    let kt: *const KernelThread = carrier.kernel_thread();
    // Unmasked by `lend`.
    std::mem::forget(carrier);
    // SAFETY: the caller's kernel thread; a bound microprocess stays on it.
    unsafe {
        (*kt).events().lend();
        (*kt).keep_to_no_core();
        (*kt).end_guard();
    }
}

fn take_back(mp: &'static Mp) {
    // SAFETY: Bound, so GS is set; a bound microprocess stays on its kernel thread.
    let kt = unsafe { KernelThread::begin_guard() };
    let mine = kt.events().take_back();
    // In the microprocess's own block (a lean one's: the kernel thread's, for which it is right
    // too): on a VP when it continues.
    set_standing(Standing::OnVp);
    if mine {
        // SAFETY: masked just now, with the VP here.
        let carrier = unsafe { Carrier::here() };
        carrier.vp().keep_to_core();
        carrier.vp().level.set(mp.level.get());
        trace_hooks::runs(&carrier.vp().trace, mp);
        // On its return, as it was told.
        if mp.state.is_suspended() {
            drop(carrier.leave(AfterSwitch::Suspend));
        }
        return;
    }
    kt.detach_vp();
    // SAFETY: bound, masked, and the slot says that the VP is gone.
    drop(unsafe { bound::leave_bound(mp) });
}
