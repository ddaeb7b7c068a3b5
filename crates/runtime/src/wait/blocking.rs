//! `blocking`: hands the VP over while a call may block the kernel thread.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

use crate::kernel_thread::gs_record::{KernelThread, Standing, set_standing};
use crate::microprocess::after_switch::AfterSwitch;
use crate::microprocess::record::Mp;
use crate::microprocess::sticky_state::Reason;
use crate::microprocess::wait_reason::Wait;
use crate::scheduler::carrier::Carrier;
use crate::trace_hooks;
use crate::upcall::{bind, bound, sticky};
use crate::wait::tracing_spans;

/// Runs `f`, which may block the kernel thread, while the VP runs other microprocesses under
/// another kernel thread.
///
/// Blocks the microprocess and its kernel thread for as long as `f` does, and no other
/// microprocess. Inside `f`, waiting on Kumihimo's own types blocks the kernel thread.
///
/// Calls `f` without a hand-off on a foreign kernel thread, and in a sticky microprocess, which has
/// no VP. The same holds if no further kernel thread is available because the limit is reached; the
/// metrics count these calls. Not a cancellation point.
///
/// # Examples
///
/// ```
/// use kumihimo::{runtime::Runtime, thread};
/// use std::io::{Read, Write};
///
/// let (mut reader, mut writer) = std::io::pipe()?;
/// let runtime = Runtime::builder().vps(1).build()?;
/// let text = runtime.run(|| {
///     let reads = thread::spawn(move || {
///         let mut text = String::new();
///         // The virtual processor runs the writer meanwhile, under another kernel thread.
///         thread::blocking(|| reader.read_to_string(&mut text)).map(|_| text)
///     });
///     thread::spawn(move || writer.write_all(b"some text").unwrap());
///     reads.join().unwrap()
/// })?;
/// assert_eq!(text, "some text");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    let _told = tracing_spans::WaitSpan::begin(Wait::Blocking);
    let Some(carrier) = Carrier::regain() else { return in_line(f) };
    let Some(mp) = carrier.running() else { return f() };
    let instance = carrier.vp().instance();
    if !instance.kernel.prepare() {
        instance.blocking_inline.fetch_add(1, Ordering::Relaxed);
        // The slot must not be masked while `f` runs.
        drop(carrier);
        return in_line(f);
    }
    lend(carrier, mp);
    // The microprocess must be back on a VP before anything unwinds through it.
    let outcome = catch_unwind(AssertUnwindSafe(f));
    take_back(mp);
    outcome.unwrap_or_else(|payload| resume_unwind(payload))
}

/// Runs the closure of `blocking` without a hand-off. Afterwards honours a suspension or a
/// call-back that arrived meanwhile, as the return from a hand-off does.
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
    // `events().lend()` unmasks the slot.
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
    // Set in the microprocess's own thread-local block, since it is on a VP when it continues. A
    // lean microprocess uses its kernel thread's block, for which the value is correct, too.
    set_standing(Standing::OnVp);
    if mp.sticky.is_bound.get() {
        return stay_bound(kt, mp, mine);
    }
    if mine {
        // SAFETY: masked just now, with the VP here.
        let carrier = unsafe { Carrier::here() };
        carrier.vp().keep_to_core();
        carrier.vp().level.set(mp.level.get());
        trace_hooks::runs(&carrier.vp().trace, mp);
        // Honours a suspension that was requested meanwhile.
        if mp.state.is_suspended() {
            drop(carrier.leave(AfterSwitch::Suspend));
        }
        return;
    }
    kt.detach_vp();
    // SAFETY: bound and masked; the slot shows that the VP was taken.
    drop(unsafe { bound::leave_bound(mp) });
}

/// Ends `blocking` of a microprocess that was bound meanwhile: it keeps its kernel thread.
#[cold]
fn stay_bound(kt: &KernelThread, mp: &'static Mp, mine: bool) {
    if mine {
        // SAFETY: masked by `take_back`, with the VP here.
        bind::stay_after_blocking(kt, mp, unsafe { Carrier::here() });
    } else {
        kt.detach_vp();
        sticky::begin(kt.instance(), kt, mp, Reason::Bound);
        kt.unmask();
    }
    // Honours a suspension that was requested meanwhile.
    drop(Carrier::regain());
}
