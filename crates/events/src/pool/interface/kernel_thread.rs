//! A kernel thread of the pool, as the user scheduler sees it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::handoff::return_queue::{self, Offer, Ticket, Waiter};
use crate::handoff::slot::{self, Slot, WANT_BLOCKED, WANT_UNBLOCKED};
use crate::handoff::thread_state::{AWAY, BOUND, Event, ThreadState};
use crate::pool::kernel::Kernel;
use crate::pool::record::Step;
use crate::pool::sched::UserScheduler;
use crate::preempt::thread_sampler;
use crate::report::fatal::{BoundedBackoff, fatal};

/// A kernel thread of the pool, as the user scheduler sees it. Lives as long as the kernel thread.
#[derive(Debug)]
pub struct KernelThread {
    kernel: Arc<Kernel>,
    index: u32,
    token: Cell<u64>,
    /// The number of doorbells in a row that interrupted code where no call could be injected.
    failed_interrupts: Cell<u32>,
    /// It has just passed its VP on and is on its way to the pool.
    passed_on: Cell<bool>,
    /// The interval of its own CPU time, in nanoseconds, after which it rings its own doorbell; 0:
    /// it does not.
    self_ring_interval: Cell<u64>,
}

impl KernelThread {
    pub(crate) fn new(kernel: Arc<Kernel>, index: u32) -> KernelThread {
        KernelThread {
            kernel,
            index,
            token: Cell::new(0),
            failed_interrupts: Cell::new(0),
            passed_on: Cell::new(false),
            self_ring_interval: Cell::new(0),
        }
    }

    /// Its record in the shared page.
    #[must_use]
    pub fn slot(&self) -> &Slot {
        self.kernel.page.slot(self.index)
    }

    /// The index of [`slot`](KernelThread::slot).
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The kernel's half that it belongs to.
    #[must_use]
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    /// What its slot holds while it carries the VP that it was given last: for [`Slot::enter`].
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token.get()
    }

    /// The VP that it carries, as far as it knows itself.
    #[must_use]
    pub fn vp(&self) -> Option<u32> {
        slot::vp_of(self.token.get(), self.kernel.vps)
    }

    pub(crate) fn install_vp(&self, token: u64) {
        let slot = self.slot();
        let vp = slot::vp_of(token, self.kernel.vps).expect("a token of this kernel's");
        let returns =
            if self.kernel.wants_returns() && self.may_stand_aside() { WANT_UNBLOCKED } else { 0 };
        slot.wanted.store(WANT_BLOCKED | returns, Ordering::Relaxed);
        self.token.set(token);
        // What was raised for an earlier carrier here, or while this kernel thread waited, is
        // dropped: it is about to choose anew, or has just been chosen (P0: Unblocked and Preempted
        // together are told as one).
        slot.pending.store(0, Ordering::Relaxed);
        self.kernel.carriers[vp as usize].store(self.index, Ordering::Relaxed);
        self.kernel.handed[vp as usize].store(0, Ordering::Relaxed);
        // Bound until the VP is here: a thread that looks for the microprocess finds it in between,
        // too.
        let bound = slot.state.load(Ordering::Relaxed) & BOUND;
        slot.state.store(ThreadState::User as u32 | bound, Ordering::Relaxed);
        self.kernel.watchdog.rest(self.index, false);
        slot.install(token);
        // See `Kernel::raise`.
        fence(Ordering::SeqCst);
        self.kernel.watchdog.wake_if_asleep();
    }

    /// By the user scheduler, on the calling kernel thread: microprocess `id` runs here from now
    /// on, at `priority` (P0, 3.3.1: the shared page says so; no system call does).
    #[inline]
    pub fn bind(&self, id: u64, priority: u8) {
        let slot = self.slot();
        slot.microprocess.store(id, Ordering::Relaxed);
        slot.priority.store(i32::from(priority), Ordering::Relaxed);
        slot.state.store(ThreadState::User as u32 | BOUND, Ordering::Relaxed);
    }

    /// The reverse of [`bind`](KernelThread::bind): the user scheduler itself runs here.
    #[inline]
    pub fn unbind(&self) {
        let slot = self.slot();
        slot.microprocess.store(0, Ordering::Relaxed);
        slot.state.store(ThreadState::User as u32, Ordering::Relaxed);
    }

    /// Releases the VP of the calling kernel thread, which is masked (P0: `yield`, first part). The
    /// VP has no carrier then: the caller gives it to one ([`Kernel::resume`], [`Kernel::hand`]).
    pub fn release_vp(&self) {
        if let Some(vp) = self.vp() {
            let _ = self.kernel.clear_carrier(vp, self.index);
        }
        self.slot().remove();
        self.token.set(0);
    }

    /// The calling kernel thread, masked, found that its VP was taken over: its microprocess is
    /// back from a sleep.
    pub fn note_lost(&self) {
        if let Some(vp) = self.vp() {
            // The thread that took it records that at once.
            let mut backoff = BoundedBackoff::default();
            while self.kernel.carriers[vp as usize].load(Ordering::Relaxed) == self.index {
                if !backoff.snooze() {
                    let index = self.index;
                    fatal(format_args!(
                        "slot {index} has no VP where its kernel thread carries {vp}, and nobody took it"
                    ));
                }
            }
        }
        self.token.set(0);
        self.slot().state.store(ThreadState::Runnable as u32 | BOUND, Ordering::Relaxed);
        self.kernel.record(Step::Woken, self.index, None);
        self.kernel.record(Step::Unblocked, self.index, None);
    }

    /// Acquires `vp`, which has no carrier, for the calling kernel thread, which is masked, has no
    /// VP and has a microprocess bound to it. Async-signal-safe.
    pub fn acquire_vp(&self, vp: u32) {
        debug_assert_eq!(self.token.get(), 0);
        self.take_bound(slot::token(vp));
    }

    /// Whether this thread may give its VP away, and take another one, in a signal handler. It may
    /// if its event source allocates nothing for that; a spare then always waits in the pool.
    #[must_use]
    pub fn may_stand_aside(&self) -> bool {
        self.kernel.source.reports_returns(self.index)
    }

    /// The calling kernel thread, masked, its microprocess bound to it, gives its VP to the next
    /// thread that comes to the pool, and is about to [`wait_for_vp`](KernelThread::wait_for_vp).
    /// Async-signal-safe where [`may_stand_aside`](KernelThread::may_stand_aside) is true.
    pub fn stand_aside(&self) {
        let Some(vp) = self.vp() else { return };
        let slot = self.slot();
        self.kernel.source.end(self.index, slot.times.load(Ordering::Relaxed));
        self.kernel.bound.fetch_add(1, Ordering::Relaxed);
        self.kernel.hand_offs.fetch_add(1, Ordering::Relaxed);
        slot.state.store(ThreadState::Runnable as u32 | BOUND, Ordering::Relaxed);
        self.release_vp();
        self.kernel.call(vp, None);
    }

    /// Leaves the VP of the calling kernel thread to the pool, because the VP is idle and another
    /// one needs a carrier ([`Kernel::has_unserved_vp`]). The caller, masked and without a
    /// microprocess, then goes to the pool and serves that VP first.
    pub fn pass_on(&self) {
        let Some(vp) = self.vp() else { return };
        self.kernel.hand_offs.fetch_add(1, Ordering::Relaxed);
        self.release_vp();
        self.kernel.leave_called(vp, None);
        self.passed_on.set(true);
    }

    pub(crate) fn has_passed_on(&self) -> bool {
        self.passed_on.take()
    }

    fn take_bound(&self, token: u64) {
        if self.kernel.begin(self).is_err() {
            // Said when the next one fails in the pool: here it would be in a signal handler.
            self.kernel.exhausted.fetch_add(1, Ordering::Relaxed);
        }
        self.install_vp(token);
        self.slot().state.store(ThreadState::User as u32 | BOUND, Ordering::Relaxed);
    }

    /// The carrier sleeps from its own free will from here, or no longer: no news of it is wanted.
    pub fn rest(&self, rests: bool) {
        self.kernel.watchdog.rest(self.index, rests);
        if !rests {
            fence(Ordering::SeqCst);
            self.kernel.watchdog.wake_if_asleep();
        }
        self.kernel.source.rest(self.index, rests);
    }

    /// Whether this kernel thread waits for a VP, or may yet be given one, in
    /// [`wait_for_vp`](KernelThread::wait_for_vp).
    #[must_use]
    pub fn waiter(&self) -> &Waiter {
        &self.kernel.waiters[self.index as usize]
    }

    /// As [`Waiter::begin`], with the ticket for [`Kernel::hand`].
    #[must_use]
    pub fn begin_wait(&self, vp: Option<u32>) -> Option<Ticket> {
        self.waiter().begin(vp).map(|generation| Ticket { thread: self.index, generation })
    }

    /// Waits, masked, until another thread [`hand`](Kernel::hand)s this kernel thread a VP, and
    /// returns true. Returns false if the wait was [released](Kernel::release_waiters), or a
    /// periodic poll of `stuck` returned true. Async-signal-safe if `stuck` is. Blocks the kernel
    /// thread.
    pub fn wait_for_vp(&self, stuck: impl Fn() -> bool) -> bool {
        let waiting = &self.kernel.waiter_count;
        waiting.fetch_add(1, Ordering::Relaxed);
        let look = || {
            self.kernel.looks.fetch_add(1, Ordering::Relaxed);
            stuck()
        };
        let handed = self
            .waiter()
            .wait(|| return_queue::poll_interval(waiting.load(Ordering::Relaxed)), look);
        waiting.fetch_sub(1, Ordering::Relaxed);
        if handed {
            self.take_bound(self.waiter().token());
        }
        handed
    }

    /// *Blocked*, said by the calling kernel thread itself, masked: it is about to be away, and
    /// somebody may take the VP. Unmasks.
    pub fn lend(&self) {
        let slot = self.slot();
        // Release: a thread that sees AWAY and open sees the VP's contents.
        slot.state.store(AWAY, Ordering::Release);
        // Masked as long as the lock is held. A thread that looks before it is unmasked leaves the
        // entry where it is.
        self.kernel.lock().lent.push(self.index);
        slot.unmask();
        self.kernel.wake_one();
    }

    /// The end of [`lend`](KernelThread::lend): masks. True if the VP is still here.
    #[must_use]
    pub fn take_back(&self) -> bool {
        let slot = self.slot();
        slot.state.store(ThreadState::User as u32 | BOUND, Ordering::Relaxed);
        let mine = slot.enter(self.token.get());
        if !mine {
            self.note_lost();
        }
        mine
    }

    /// Detaches the calling kernel thread, which has no VP, with its microprocess: from here it
    /// owns no perf event, neither the source's nor that of its doorbell. Async-signal-safe.
    pub fn detach(&self) {
        debug_assert_eq!(self.token.get(), 0);
        self.self_ring_interval.set(0);
        self.kernel.source.leave(self.index);
        // A thread that rings for it just now requests it to take a VP; then it is closed when that
        // was given up.
        let _ = self.kernel.doorbells.close(self.index);
        self.slot().state.store(ThreadState::User as u32 | BOUND, Ordering::Relaxed);
    }

    /// Takes what was raised for the carrier here, *Preempted* and *Changed*, one or both or none
    /// ([`Event::bit`]), to be acted upon. Only by the calling kernel thread.
    #[must_use]
    pub fn take_raised(&self) -> u32 {
        let events = self.slot().pending.swap(0, Ordering::AcqRel)
            & (Event::Preempted.bit() | Event::Changed.bit());
        if events & Event::Preempted.bit() != 0 {
            self.kernel.record(Step::Preempted, self.index, None);
        }
        events
    }

    /// The slot was unmasked where nothing can be told: what was raised waits on. For the watchdog,
    /// which else would think that it never was. Only by the calling kernel thread.
    pub fn leave_raised(&self) {
        self.slot().pending.fetch_and(!slot::PROBE, Ordering::Relaxed);
    }

    /// Handles a doorbell that rang.
    ///
    /// # Safety
    /// In a signal handler on this kernel thread, with the context that the kernel gave it.
    pub(crate) unsafe fn on_doorbell(&self, context: *mut libc::ucontext_t) {
        /// Before the second attempt, nanoseconds. Much less, and a slow machine does nothing but
        /// attempt.
        const FIRST: u64 = 50_000;
        const DOUBLED: u32 = 5;
        // SAFETY: the caller's promise.
        unsafe {
            thread_sampler::record_on_doorbell(
                self.slot().tid.load(Ordering::Relaxed) as i32,
                context,
            )
        };
        let Some(scheduler) = self.scheduler() else { return };
        if self.token.get() == 0 {
            self.self_ring_interval.set(0);
        }
        let own = self.self_ring_interval.get();
        if own != 0 {
            self.slot().pending.fetch_or(Event::Preempted.bit(), Ordering::Relaxed);
        }
        let vain = self.failed_interrupts.get();
        // SAFETY: the caller's promise.
        if !self.slot().has_pending() || unsafe { scheduler.interrupted(context, vain) } {
            if vain != 0 {
                self.failed_interrupts.set(0);
                self.kernel.doorbells.restore_period(self.index);
            }
            if own != 0 {
                self.kernel.doorbells.rearm_after(self.index, own);
            }
        } else if self.kernel.doorbells.rearm_after(self.index, FIRST << vain.min(DOUBLED)) {
            self.failed_interrupts.set(vain + 1);
        }
    }

    /// Has itself interrupted, as by [`Kernel::raise`] of *Preempted*, whenever it has run for so
    /// many nanoseconds of its own CPU time, if it can have a clock; until it carries no VP. Only
    /// by the calling kernel thread, masked; takes a lock.
    pub fn ring_every(&self, nanoseconds: u64) {
        self.self_ring_interval.set(nanoseconds);
        self.kernel.doorbells.ring_after(self.index, self.slot(), nanoseconds);
    }

    /// Disables interruptions of the calling kernel thread, or enables them again: for execve(2),
    /// whose new program has no handler. Takes a lock: the caller is masked, or the user scheduler
    /// has nothing interrupted.
    pub fn disable_interrupts(&self, is: bool) {
        self.kernel.doorbells.set_disabled(self.index, is);
    }

    /// Tells the user scheduler what waited for the slot to be unmasked ([`Slot::exit`]).
    #[cold]
    pub fn deliver(&self) {
        let events = self.take_raised();
        if events != 0
            && let Some(scheduler) = self.kernel.user()
        {
            scheduler.notified(events);
        }
    }

    /// The scheduler of the kernel's half that it belongs to.
    pub(crate) fn scheduler(&self) -> Option<Arc<dyn UserScheduler>> {
        self.kernel.user()
    }
}

impl Kernel {
    /// Hands the VP of the calling kernel thread, `from`, to the one that waits for it with
    /// `ticket`, which the caller took out of a run queue. That kernel thread may have ended, or
    /// wait with another ticket: see [`Offer::Switchable`].
    pub fn hand(&self, ticket: Ticket, from: &KernelThread) -> Offer {
        let token = from.token();
        debug_assert!(token != 0);
        let waiter = &self.waiters[ticket.thread as usize];
        let offer = waiter.offer(ticket.generation);
        if offer != Offer::Accepted {
            return offer;
        }
        from.release_vp();
        // It may be long in getting a core: see `is_vp_stalled`.
        if let Some(vp) = slot::vp_of(token, self.vps) {
            self.handed[vp as usize].store(ticket.thread, Ordering::Relaxed);
        }
        self.hand_offs.fetch_add(1, Ordering::Relaxed);
        waiter.hand(token);
        offer
    }

    /// Whether the waiter with `ticket` went on without a VP. Out of date at once.
    #[must_use]
    pub fn is_detached(&self, ticket: Ticket) -> bool {
        self.waiters[ticket.thread as usize].is_detached_in(ticket.generation)
    }
}
