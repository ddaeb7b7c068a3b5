//! A kernel thread goes away with its microprocess, and the virtual processor goes on under a
//! spare.
//!
//! The kernel's half ([`kumihimo_events::kernel`]) has the pool and the hand-off; here is what the
//! user scheduler does about it. *Blocked*: the VP is looked at for what runs next. *Resumed*: a
//! kernel thread runs microprocesses on the VP until it is gone. *Unblocked* comes in one of two
//! ways: told by a trap, the kernel thread waits for its turn where it stands; not told, the
//! microprocess runs on until it enters the runtime, finds its VP gone, and leaves its kernel
//! thread like one that was woken from outside.
//!
//! `blocking` announces that it goes away. The first of the two keeps the VP: a call that returns
//! before the spare ran continues as if nothing had happened (protocol and models:
//! [`kumihimo_events::slot`]).

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::Ordering;

use kumihimo_arch::cpu::{self, Context};
use kumihimo_arch::overflow;
use kumihimo_events as events;
use kumihimo_events::return_queue::Offer;
use kumihimo_events::sched::{Answer, Starved, Tick, UserScheduler};

use crate::carrier::{Carrier, KernelThread, Standing, set_standing, standing};
use crate::instance::Instance;
use crate::intake;
use crate::park::Wait;
use crate::preempt;
use crate::record::Mp;
use crate::slice;
use crate::sticky::{self, Reason};
use crate::tracing;
use crate::vp::Left;

impl UserScheduler for Instance {
    fn thread(&self, thread: &events::KernelThread, live: &mut dyn FnMut()) {
        // No memory for it is no reason to end: in a Rust program std has given this kernel thread
        // an alternate stack, which takes its place; under a `main` that is not Rust's an overflow
        // would then end in a bare SIGSEGV.
        let _alt_stack = overflow::alt_stack_for_this_thread().ok();
        preempt::note_usual_mask();
        intake::begin_on_all_cores();
        slice::begin();
        KernelThread::with(self, thread, live);
    }

    fn blocked(&self, vp: u32) -> Answer {
        tracing::blocked(&self.vps[vp as usize]);
        let levels = self.vps[vp as usize].queue().levels();
        // Carried in any case: its timers and descriptors are looked after there.
        Answer::Next(levels.checked_ilog2().map(|level| level as u8))
    }

    fn resumed(&self, vp: u32, _thread: &events::KernelThread) {
        // SAFETY: a kernel thread of the pool: GS is set, its slot masked once.
        let kt = unsafe { KernelThread::here() };
        kt.now_carries(&raw const self.vps[vp as usize]);
        self.kernel.start_timekeeper();
        // SAFETY: as above.
        unsafe { Carrier::here() }.run();
        // Nor when it carries a VP again, until it has chosen.
        kt.shows_nobody();
        if kt.vp.get().is_null() {
            publish_bound(self, kt);
        }
        // What it did without a VP, too; it may never carry one again.
        self.book(vp as usize, kt.unbooked(), self.now());
        tracing::pooled(self, kt);
    }

    fn unblocked(&self) {
        // `Bound`: inside `blocking`, which looks for its VP by itself.
        if standing() != Standing::OnVp {
            return;
        }
        // SAFETY: not foreign: GS is set.
        let kt = unsafe { KernelThread::here() };
        kt.in_handler(|| {
            let carrier = Carrier::current();
            // SAFETY: null or a record, which lives for ever.
            let Some(mp) = (unsafe { kt.current.get().as_ref() }) else { return };
            let reason = sticky::reason(self, mp);
            match (carrier, reason) {
                // Back before a spare came. A block all the same: of two that talk to each other
                // both would be told for ever. So it gives the VP away.
                (Some(carrier), Some(Reason::Often)) => {
                    give_away(kt);
                    let _ = carrier.release();
                    sticky::begin(self, kt, mp, Reason::Often);
                }
                (Some(_), _) => {}
                (None, Some(reason)) => sticky::begin(self, kt, mp, reason),
                (None, None) => {
                    await_turn(self, mp);
                }
            }
        });
    }

    fn notified(&self, _events: u32) {
        // Not through here: `preempt::deliver`.
    }

    unsafe fn interrupted(&self, context: *mut libc::ucontext_t, vain: u32) -> bool {
        // SAFETY: the caller's promise.
        unsafe { preempt::interrupted(context, vain) }
    }

    fn outranked(&self, vp: u32, _priority: i32) -> Option<u64> {
        // Whatever came from outside must be taken in when Preempted was told, be it of higher
        // priority or not: until then it is not known.
        let vp = &self.vps[vp as usize];
        let moves = vp
            .counters
            .switches
            .load(Ordering::Relaxed)
            .wrapping_add(vp.tick.answers.load(Ordering::Relaxed));
        self.queues.has_injected(vp.index).then_some(moves)
    }

    fn overridden(&self, vp: u32, off: bool) {
        if off {
            // Before anybody treats it so.
            tracing::overridden(self, vp);
        }
        self.queues.set_stuck(vp as usize, off);
        if off {
            self.stuck_vps.fetch_add(1, Ordering::Relaxed);
            // Sleeping VPs can pull the surplus from there.
            self.vps.iter().for_each(|vp| vp.idle.wake());
        } else {
            self.stuck_vps.fetch_sub(1, Ordering::Relaxed);
        }
    }

    fn starved(&self, starved: Starved) -> bool {
        self.report_starvation(starved)
    }

    fn no_spare(&self) {
        if !self.has_levels() {
            (0..self.vps.len()).for_each(|vp| self.kernel.release_waiters(vp as u32));
        }
    }

    fn name_of(&self, id: u64, out: &mut [u8]) -> usize {
        crate::identity::find(id).map_or(0, |mp| mp.label(out))
    }

    fn tick(&self) -> Tick {
        self.look_at_turns()
    }

    fn ready(&self, vp: u32) {
        self.is_ready(vp);
    }
}

/// The calling kernel thread, entered, keeps its microprocess where it is, and its VP is anyone's.
/// Async-signal-safe; only where
/// [`KernelThread::may_stand_aside`](events::KernelThread::may_stand_aside) says so.
fn give_away(kt: &KernelThread) {
    // SAFETY: entered: the VP is here, and outlives its carriers.
    tracing::blocked(unsafe { &*kt.vp.get() });
    kt.events().stand_aside();
    kt.put_down();
}

/// Queues the interrupted microprocess, which has no VP, and waits on its own kernel thread until a
/// VP is handed over. Returns without one if its VP cannot come. Called in a signal handler;
/// async-signal-safe.
fn await_turn(instance: &Instance, mp: &'static Mp) {
    // SAFETY: a microprocess without a VP: GS is set.
    let kt = unsafe { KernelThread::stay() };
    kt.mask();
    let home = usize::from(mp.home.load(Ordering::Relaxed)) % instance.vps.len();
    let thread = kt.events();
    let patience = &instance.vps[home].patience;
    loop {
        if let Some(ticket) = thread.begin_wait(Some(home as u32)) {
            // SAFETY: the running microprocess is ours, and so is its context, which is not in use:
            // a scheduler that picks its entry finds that it waits here.
            unsafe { *mp.context.get() = Context::NULL };
            mp.waits_on.set(kt);
            mp.ticket.set(ticket);
            tracing::unblocked(instance, kt, mp);
            instance.inject(home, mp);
        }
        let handed = thread.wait_for_vp(|| patience.is_over(instance, home, mp));
        // It was excused together with all others that wait for that VP, but must not run.
        if handed || !mp.state.is_suspended() {
            break;
        }
    }
    if let Some(vp) = thread.vp() {
        let vp = &instance.vps[vp as usize];
        kt.now_carries(vp);
        instance.kernel.unbind();
        vp.level.set(mp.level.get());
        vp.account_for(mp);
        kt.show(mp);
        vp.recheck_core();
        tracing::runs(vp, mp);
    }
    kt.unmask();
}

/// The calling kernel thread keeps its microprocess where it is and gives its VP away, until that
/// microprocess has its turn again. Async-signal-safe; only where
/// [`KernelThread::may_stand_aside`](events::KernelThread::may_stand_aside) says so.
///
/// # Safety
/// In a signal handler that has interrupted `mp`, outside of the runtime.
pub(crate) unsafe fn stand_aside(mp: &'static Mp) {
    // SAFETY: a microprocess: GS is set.
    let kt = unsafe { KernelThread::stay() };
    if kt.enter() {
        kt.in_handler(|| {
            let _ = kt.events().take_raised();
            give_away(kt);
            await_turn(kt.instance(), mp);
        });
    }
    // What was raised meanwhile is told when the microprocess next enters the runtime.
    let _ = kt.unmask_quietly();
}

/// In a handler that has interrupted `mp`, which computes without a VP: waits for one, where that
/// could be in a handler at all; if it is sticky, it was called back. Async-signal-safe.
pub(crate) fn await_another_turn(kt: &KernelThread, mp: &'static Mp) {
    if kt.events().may_stand_aside() {
        kt.in_handler(|| {
            if standing() == Standing::Sticky {
                sticky::end(kt.instance(), kt, mp);
            }
            await_turn(kt.instance(), mp);
        });
    }
}

impl Carrier {
    /// On the kernel thread's own stack: `next` runs here; or, if it waits for its turn on another
    /// kernel thread, the VP goes there. None: it did.
    #[must_use]
    pub(crate) fn go_on_with(self, next: &'static Mp) -> Option<Carrier> {
        if !next.waits_elsewhere() {
            return Some(self.switch(next, Left::Nothing));
        }
        let kt = self.kernel_thread();
        // The waiter set it before it was queued. From here it may leave its kernel thread, and
        // that may end.
        let ticket = next.ticket.get();
        let kernel = &self.vp().instance().kernel;
        kt.announce(next);
        // One that went on without is not held by that: it is when it wants a VP again.
        if next.state.is_suspended() && !kernel.is_detached(ticket) && self.vp().hold(next) {
            return Some(self);
        }
        // It has its own kernel thread, where it is seen.
        kt.shows_nobody();
        match kernel.hand(ticket, kt.events()) {
            Offer::Accepted => {
                kt.put_down();
                // Masked, as in the pool.
                std::mem::forget(self);
                return None;
            }
            Offer::Switchable => return self.go_on_with(next),
            Offer::EntryDropped => {}
        }
        // It went on without: the entry is dropped, and the VP comes round again, so that it need
        // not compute beside it any more.
        tracing::went_on(self.vp(), next, ticket.thread());
        kernel.call_back(ticket.thread());
        Some(self)
    }

    /// As [`switch`](Carrier::switch), to one that waits for its turn on another kernel thread.
    #[cold]
    pub(crate) fn promise(self, next: &'static Mp, left: Left) -> Carrier {
        self.vp().promised.set(Some(next));
        self.switch_to_idle(left)
    }
}

/// The microprocess that came back without a VP has left its stack: it is runnable, like one that
/// was woken from outside.
fn publish_bound(instance: &Instance, kt: &KernelThread) {
    // SAFETY: null or a record.
    let Some(mp) = (unsafe { kt.current.replace(std::ptr::null()).as_ref() }) else { return };
    let left = kt.left.replace(Context::NULL);
    let has_entry = left != Context::NULL && {
        mp.leaves_its_thread(left);
        // After that it may run on another thread at once.
        kt.events().waiter().leave()
    };
    if !has_entry {
        tracing::unblocked(instance, kt, mp);
        instance.inject(usize::from(mp.home.load(Ordering::Relaxed)), mp);
    }
    instance.kernel.unbind();
}

/// Runs `f`, which may block the kernel thread, while the VP goes on elsewhere with the other
/// microprocesses.
///
/// Blocks the kernel thread for as long as `f` does, and the microprocess with it; nobody else.
/// Inside, waiting on Kumihimo's own types blocks the kernel thread. On a foreign kernel thread, or
/// where no further kernel thread is to be had (limit reached; counted in the metrics), `f` simply
/// runs. It also simply runs in a sticky microprocess, which has no virtual processor to give away.
/// Not a cancellation point.
pub fn blocking<R>(f: impl FnOnce() -> R) -> R {
    let _told = crate::spans::Waits::begin(Wait::Blocking);
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
    tracing::lent(vp);
    set_standing(Standing::Bound);
    let kt: *const KernelThread = carrier.kernel_thread();
    // Unmasked by `lend`.
    std::mem::forget(carrier);
    // SAFETY: the caller's kernel thread; a bound microprocess stays on it.
    unsafe {
        (*kt).events().lend();
        (*kt).keep_to_no_core();
        (*kt).leave_alone();
    }
}

fn take_back(mp: &'static Mp) {
    // SAFETY: Bound, so GS is set; a bound microprocess stays on its kernel thread.
    let kt = unsafe { KernelThread::stay() };
    let mine = kt.events().take_back();
    // In the microprocess's own block (a lean one's: the kernel thread's, for which it is right
    // too): on a VP when it continues.
    set_standing(Standing::OnVp);
    if mine {
        // SAFETY: masked just now, with the VP here.
        let carrier = unsafe { Carrier::here() };
        carrier.vp().keep_to_core();
        carrier.vp().level.set(mp.level.get());
        tracing::runs(carrier.vp(), mp);
        // On its return, as it was told.
        if mp.state.is_suspended() {
            drop(carrier.leave(Left::Held));
        }
        return;
    }
    kt.put_down();
    // SAFETY: bound, masked, and the slot says that the VP is gone.
    drop(unsafe { leave_bound(mp) });
}

/// The caller's VP was taken over while it was away in the kernel without saying so. None: it is
/// sticky from here.
#[cold]
pub(crate) fn come_back_or_stick() -> Option<Carrier> {
    // SAFETY: the caller's standing is `OnVp`: GS is set. It has no VP, so nothing is injected that
    // would switch: it is the same kernel thread.
    let kt = unsafe { KernelThread::stay() };
    // See `come_back`.
    kt.mask();
    // SAFETY: null or a record, which lives for ever.
    let mp = unsafe { kt.current.get().as_ref() }
        .filter(|_| kt.vp.get().is_null() && !kt.is_in_handler());
    let reason = mp.and_then(|mp| Some((mp, sticky::reason(kt.instance(), mp)?)));
    if let Some((mp, reason)) = reason {
        sticky::begin(kt.instance(), kt, mp, reason);
    }
    kt.unmask();
    reason.is_none().then(come_back)
}

/// As [`come_back_or_stick`], and it is on a VP.
#[cold]
pub(crate) fn come_back() -> Carrier {
    loop {
        // SAFETY: the caller's standing is `OnVp`: GS is set. It has no VP, so nothing is injected
        // that would switch: it is the same kernel thread.
        let kt = unsafe { KernelThread::stay() };
        // Before the looks: until here a bell may interrupt one that went on without a VP
        // (`await_another_turn`), which then has one, or an entry in a queue.
        kt.mask();
        if kt.vp.get().is_null() {
            // SAFETY: the kernel thread's own stack has no VP, so a microprocess runs; masked.
            let mp = unsafe { crate::carrier::running_here() }.expect("a microprocess lost its VP");
            // SAFETY: it is bound, masked, and its kernel thread has no VP.
            return unsafe { leave_bound(mp) };
        }
        kt.unmask();
        if let Some(carrier) = Carrier::current() {
            return carrier;
        }
    }
}

/// A bound microprocess gives its kernel thread up and continues when it has its turn on a VP.
///
/// # Safety
/// The caller is `mp`; its kernel thread has no VP.
unsafe fn leave_bound(mp: &'static Mp) -> Carrier {
    // SAFETY: a microprocess: GS is set.
    let kt = unsafe { KernelThread::here() };
    // A scheduler that holds its queue entry must not switch to it before it has left this stack.
    let save = if kt.events().waiter().is_detached() { kt.left.as_ptr() } else { mp.context.get() };
    let (to, fs) = (kt.idle.get(), kt.fs);
    let own_fs = if mp.fs.get() == 0 { fs } else { mp.fs.get() };
    // SAFETY: the kernel thread's own context waits in `Carrier::run`; it publishes this
    // microprocess (`current`) only after it was left. The thread that takes it from the injector
    // continues it on a VP.
    unsafe {
        if fs == own_fs {
            cpu::switch_same(save, *to);
        } else if cpu::fsgsbase() {
            cpu::switch_fs(save, *to, fs);
        } else {
            cpu::switch_prctl(save, *to, fs);
        }
        Carrier::here().arrive()
    }
}
