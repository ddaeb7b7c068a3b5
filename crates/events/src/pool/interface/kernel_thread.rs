//! A kernel thread of the pool, as the user scheduler sees it.

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};

use crate::handoff::return_queue::{self, Offer, Ticket, Waiter};
use crate::handoff::slot::{self, Slot, WANT_BLOCKED, WANT_UNBLOCKED};
use crate::handoff::thread_state::{AWAY, BOUND, Event, ThreadState};
use crate::pool::kernel::Kernel;
use crate::pool::record::Step;
use crate::pool::sched::UserScheduler;
use crate::preempt::{cpu_profiler, thread_sampler};

/// A kernel thread of the pool, as the user scheduler sees it. Lives as long as the kernel thread.
#[derive(Debug)]
pub struct KernelThread {
    kernel: Arc<Kernel>,
    index: u32,
    token: Cell<u64>,
    /// The number of doorbells in a row that interrupted code where no call could be injected.
    failed_interrupts: Cell<u32>,
    /// Whether the thread has just passed its VP on and is on its way to the pool.
    passed_on: Cell<bool>,
    /// Whether the thread must end instead of returning to the pool.
    retires: Cell<bool>,
    /// The interval of the thread's CPU time, in nanoseconds, after which the thread rings its own
    /// doorbell; 0: never.
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
            retires: Cell::new(false),
            self_ring_interval: Cell::new(0),
        }
    }

    /// Returns the thread's record in the shared page.
    #[must_use]
    pub fn slot(&self) -> &Slot {
        self.kernel.page.slot(self.index)
    }

    /// Returns the index of [`slot`](KernelThread::slot).
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the kernel's half to which the thread belongs.
    #[must_use]
    pub fn kernel(&self) -> &Arc<Kernel> {
        &self.kernel
    }

    /// Returns the token of the VP that the thread received last, for [`Slot::enter`].
    #[must_use]
    pub fn token(&self) -> u64 {
        self.token.get()
    }

    /// Returns the VP that the thread received last. It may have been taken over since.
    #[must_use]
    pub fn vp(&self) -> Option<u32> {
        slot::vp_of(self.token.get(), self.kernel.vps)
    }

    pub(crate) fn install_vp(&self, token: u64) {
        let slot = self.slot();
        let returns =
            if self.kernel.wants_returns() && self.may_stand_aside() { WANT_UNBLOCKED } else { 0 };
        slot.wanted.store(WANT_BLOCKED | returns, Ordering::Relaxed);
        self.token.set(token);
        // Events that were raised for an earlier carrier here, or while this thread waited, are
        // dropped: the scheduler is about to choose anew, or has just chosen. (P0 reports Unblocked
        // and Preempted together as one.)
        slot.pending.store(0, Ordering::Relaxed);
        let rest = || self.kernel.watchdog.rest(self.index, false);
        self.kernel.carriers.begin(slot, self.index, token, rest);
        self.kernel.watchdog.wake_if_asleep();
    }

    /// Notes that microprocess `id` runs at `priority` on the calling kernel thread from now on.
    /// Writes the shared page and makes no system call (P0, 3.3.1). Called by the user scheduler.
    #[inline]
    pub fn bind(&self, id: u64, priority: u8) {
        let slot = self.slot();
        slot.microprocess.store(id, Ordering::Relaxed);
        slot.priority.store(i32::from(priority), Ordering::Relaxed);
        slot.state.store(ThreadState::User as u32 | BOUND, Ordering::Relaxed);
    }

    /// Reverses [`bind`](KernelThread::bind): the user scheduler itself runs on the thread.
    #[inline]
    pub fn unbind(&self) {
        let slot = self.slot();
        slot.microprocess.store(0, Ordering::Relaxed);
        slot.state.store(ThreadState::User as u32, Ordering::Relaxed);
    }

    /// Releases the VP of the calling kernel thread, which is masked (P0: first part of `yield`).
    /// The VP then has no carrier: the caller gives it to another thread ([`Kernel::resume`],
    /// [`Kernel::hand`]).
    pub fn release_vp(&self) {
        if let Some(vp) = self.vp() {
            let _ = self.kernel.carriers.clear(vp, self.index);
        }
        self.slot().remove();
        self.token.set(0);
    }

    /// Notes that the calling kernel thread has lost its VP: its microprocess is back from a sleep.
    /// Called while masked.
    pub fn note_lost(&self) {
        if let Some(vp) = self.vp() {
            self.kernel.carriers.await_clear(vp, self.index);
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

    /// Returns whether this thread may give its VP away, and receive another one, in a signal
    /// handler. That requires an event source that allocates nothing in these steps, and a spare
    /// that always waits in the pool.
    #[must_use]
    pub fn may_stand_aside(&self) -> bool {
        self.kernel.source.reports_returns(self.index)
    }

    /// Gives the VP of the calling kernel thread to the next thread that comes to the pool. The
    /// caller is masked, has a microprocess bound to it, and calls
    /// [`wait_for_vp`](KernelThread::wait_for_vp) next. Async-signal-safe if
    /// [`may_stand_aside`](KernelThread::may_stand_aside) returns true.
    pub fn stand_aside(&self) {
        let Some(vp) = self.vp() else { return };
        self.put_down();
        self.kernel.call(vp, None);
    }

    /// Ends that the thread carries its VP. A microprocess stays bound to it.
    fn put_down(&self) {
        let slot = self.slot();
        self.kernel.source.end(self.index, slot.times.load(Ordering::Relaxed));
        self.kernel.bound.fetch_add(1, Ordering::Relaxed);
        self.kernel.hand_offs.fetch_add(1, Ordering::Relaxed);
        slot.state.store(ThreadState::Runnable as u32 | BOUND, Ordering::Relaxed);
        self.release_vp();
    }

    /// Gives the VP of the calling kernel thread to another thread of the pool, which is started if
    /// none waits. The caller is masked, and its microprocess never needs a VP again: the thread
    /// ends instead of returning to the pool. Takes a lock.
    ///
    /// # Errors
    /// `WouldBlock` if the limit of kernel threads is reached, or the error of starting one.
    /// Nothing has changed then.
    pub fn leave_vp(&self) -> io::Result<()> {
        let Some(vp) = self.vp() else { return Ok(()) };
        let mut pool = self.kernel.lock();
        if pool.dismissed {
            return Err(io::Error::other("the runtime is ending"));
        }
        // Each VP that was called takes one of the waiting threads.
        self.kernel.take_called(&mut pool);
        if pool.available() <= pool.ready.len() {
            self.kernel.start(&mut pool)?;
        }
        self.put_down();
        pool.push(slot::token(vp), None);
        drop(pool);
        self.kernel.wake_one();
        Ok(())
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

    /// Parks the VP of the calling kernel thread, after [`Kernel::begin_parking`]: the VP has no
    /// carrier until [`Kernel::unpark`]. The caller, masked and without a microprocess, then goes
    /// to the pool.
    pub fn park_vp(&self) {
        let Some(vp) = self.vp() else { return };
        self.release_vp();
        if !self.kernel.park_words[vp as usize].commit() {
            self.kernel.leave_called(vp, None);
        }
    }

    /// Makes the calling kernel thread end when it would return to the pool, because its
    /// microprocess has changed it in a way that cannot be undone.
    pub fn retire_after_use(&self) {
        self.retires.set(true);
    }

    pub(crate) fn must_retire(&self) -> bool {
        self.retires.get()
    }

    pub(crate) fn has_passed_on(&self) -> bool {
        self.passed_on.take()
    }

    fn take_bound(&self, token: u64) {
        if self.kernel.begin(self).is_err() {
            // The error is printed when the next attempt in the pool fails: this code may run in a
            // signal handler.
            self.kernel.exhausted.fetch_add(1, Ordering::Relaxed);
        }
        self.install_vp(token);
        self.slot().state.store(ThreadState::User as u32 | BOUND, Ordering::Relaxed);
    }

    /// Notes that the carrier begins to sleep on purpose (as an idle VP does), or no longer does.
    /// Sleeps of a resting carrier are not reported.
    pub fn rest(&self, rests: bool) {
        self.kernel.watchdog.rest(self.index, rests);
        if !rests {
            fence(Ordering::SeqCst);
            self.kernel.watchdog.wake_if_asleep();
        }
        self.kernel.source.rest(self.index, rests);
    }

    /// Returns this kernel thread's state in the return queue: whether it waits for a VP, or may
    /// still receive one, in [`wait_for_vp`](KernelThread::wait_for_vp).
    #[must_use]
    pub fn waiter(&self) -> &Waiter {
        &self.kernel.waiters[self.index as usize]
    }

    /// As [`Waiter::begin`], but returns the ticket for [`Kernel::hand`].
    #[must_use]
    pub fn begin_wait(&self, vp: Option<u32>) -> Option<Ticket> {
        self.waiter().begin(vp).map(|generation| Ticket::new(self.index, generation))
    }

    /// Waits, masked, until another thread [`hand`](Kernel::hand)s this kernel thread a VP, and
    /// returns true. Returns false if the wait was [released](Kernel::release_waiters), or a
    /// periodic poll of `stuck` returned true. Blocks the kernel thread. Async-signal-safe if
    /// `stuck` is.
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

    /// Lends the VP of the calling kernel thread, which is masked and is about to block: a spare
    /// may take the VP. Unmasks the slot.
    pub fn lend(&self) {
        let slot = self.slot();
        // Release: a thread that reads AWAY and an unmasked slot sees the VP's contents.
        slot.state.store(AWAY, Ordering::Release);
        // The slot stays masked while the lock is held. A thread that checks the entry before the
        // slot is unmasked leaves it in the list.
        let mut pool = self.kernel.lock();
        pool.lent.push(self.index);
        // The thread that `prepare` has found may have left the pool since, with the VP of another
        // one that had found the same.
        if pool.available() == 0 && !pool.dismissed {
            // On failure, the VP is held up until the caller returns, or a thread enters the pool.
            let _ = self.kernel.start(&mut pool).inspect_err(|e| self.kernel.exhausted(e));
        }
        drop(pool);
        slot.unmask();
        self.kernel.wake_one();
    }

    /// Ends [`lend`](KernelThread::lend): masks the slot. Returns whether the thread still has its
    /// VP.
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

    /// Detaches the calling kernel thread, which has no VP, together with its microprocess. The
    /// thread then owns no perf event, neither the source's nor the doorbell's. Async-signal-safe.
    pub fn detach(&self) {
        debug_assert_eq!(self.token.get(), 0);
        self.self_ring_interval.set(0);
        self.kernel.source.leave(self.index);
        // Fails while another thread rings this doorbell, which is closed once it has rung.
        let _ = self.kernel.doorbells.close(self.index);
        self.slot().state.store(ThreadState::User as u32 | BOUND, Ordering::Relaxed);
    }

    /// Takes the raised events, *Preempted* and *Changed*, for the caller to act upon: both, one or
    /// none ([`Event::bit`]). Called by the kernel thread itself.
    #[must_use]
    pub fn take_raised(&self) -> u32 {
        let events = self.slot().pending.swap(0, Ordering::AcqRel)
            & (Event::Preempted.bit() | Event::Changed.bit());
        if events & Event::Preempted.bit() != 0 {
            self.kernel.record(Step::Preempted, self.index, None);
        }
        events
    }

    /// Leaves the raised events pending where the slot was unmasked but no event can be delivered.
    /// Clears the watchdog's probe, which proves that the slot was unmasked, and wakes a spare if
    /// one waits for that. Called by the kernel thread itself.
    pub fn leave_raised(&self) {
        let none = !(slot::PROBE | slot::WANTED);
        if self.slot().pending.fetch_and(none, Ordering::Relaxed) & slot::WANTED != 0 {
            self.kernel.wake_one();
        }
    }

    /// Handles a doorbell that rang.
    ///
    /// # Safety
    /// Called in a signal handler on this kernel thread, with the context that the kernel passed to
    /// it.
    pub(crate) unsafe fn on_doorbell(&self, context: *mut libc::ucontext_t) {
        /// The time before the second attempt, in nanoseconds. With a much shorter time, a slow
        /// machine spends all of its time on attempts.
        const FIRST: u64 = 50_000;
        const DOUBLED: u32 = 5;
        // SAFETY: the caller guarantees the context.
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
        // SAFETY: the caller guarantees the context.
        if !self.slot().has_pending() || unsafe { scheduler.interrupted(context, vain) } {
            if vain != 0 {
                self.failed_interrupts.set(0);
                self.kernel.doorbells.restore_period(self.index);
            }
            if own != 0 {
                self.kernel.doorbells.rearm_after(self.index, own);
            } else if self.token.get() == 0 {
                // The ring came as the thread gave its VP up, or asks for a sample of its stack. A
                // clock would slow each of its waits in the kernel down. Fails if it rings again.
                let _ = self.kernel.doorbells.close(self.index);
            }
        } else if self.kernel.doorbells.rearm_after(self.index, FIRST << vain.min(DOUBLED)) {
            self.failed_interrupts.set(vain + 1);
        }
    }

    /// Interrupts this kernel thread, as [`Kernel::raise`] of *Preempted* does, after every
    /// `nanoseconds` of its own CPU time until it carries no VP. Does nothing if the thread can
    /// have no perf clock. Called by the kernel thread itself while masked. Takes a lock.
    pub fn ring_every(&self, nanoseconds: u64) {
        self.self_ring_interval.set(nanoseconds);
        self.kernel.doorbells.ring_after(self.index, self.slot(), nanoseconds);
    }

    /// Disables or enables interruptions of the calling kernel thread. execve(2) needs this, since
    /// the new program has no handler. Takes a lock: the caller is masked, or the user scheduler
    /// has nothing interrupted.
    pub fn disable_interrupts(&self, is: bool) {
        self.kernel.doorbells.set_disabled(self.index, is);
        cpu_profiler::pause(self.slot().tid.load(Ordering::Relaxed), is);
    }

    /// Delivers the events that waited for the slot to be unmasked ([`Slot::exit`]) to the user
    /// scheduler.
    #[cold]
    pub fn deliver(&self) {
        let events = self.take_raised();
        if events != 0
            && let Some(scheduler) = self.kernel.user()
        {
            scheduler.notified(events);
        }
    }

    /// Returns the user scheduler of the kernel's half to which the thread belongs.
    pub(crate) fn scheduler(&self) -> Option<Arc<dyn UserScheduler>> {
        self.kernel.user()
    }
}

impl Kernel {
    /// Hands the VP of the calling kernel thread, `from`, to the thread that waits with `ticket`.
    /// The caller took the ticket out of a run queue. The waiting thread may have ended, or may
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
        // The receiving thread may wait long for a core: see `is_vp_stalled`.
        if let Some(vp) = slot::vp_of(token, self.vps) {
            self.carriers.hand(vp, ticket.thread);
        }
        self.hand_offs.fetch_add(1, Ordering::Relaxed);
        waiter.hand(token);
        offer
    }

    /// Returns whether the waiter with `ticket` continued without a VP. The result may be out of
    /// date.
    #[must_use]
    pub fn is_detached(&self, ticket: Ticket) -> bool {
        self.waiters[ticket.thread as usize].is_detached_in(ticket.generation)
    }
}
