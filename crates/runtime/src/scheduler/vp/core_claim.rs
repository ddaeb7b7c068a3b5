//! Whose core it is: what a virtual processor does at the board while other address spaces are
//! there (P0, section 3: one priority scale for the machine).
//!
//! Each VP is at home on one core, whose slot on the board says which VP may run there
//! ([`kumihimo_arbiter::seat`]). It asks where it rebalances: at each switch, at each look at the
//! clock, when it is notified. If the core is another VP's, what runs here gives way as to
//! something of a higher level, to the kernel thread's own stack; there the VP waits in its cell,
//! with its work in its queue, where other VPs of this address space can have it.
//!
//! Alone at the board, or at none, all of this is one comparison in places that are slow anyway.
//!
//! The CPU time of the kernel threads is booked about every millisecond, at a look at the clock.
//! Where that makes the address space count otherwise (its share is used up, or feedback), all its
//! VPs hear *Changed*, and ask again.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use kumihimo_arbiter::row::{Bed, Caller};
use kumihimo_arbiter::seat::{Holds, Outcome, Seat};
use kumihimo_events::sched::Event;
use kumihimo_policy::Priority;

use super::Vp;
use crate::idle::remote_wake;
use crate::kernel_thread::gs_record::KernelThread;
use crate::priority::core_claim::BOOK_AT_LATEST;
use crate::process::{board, clock, cores};
use crate::scheduler::instance::Instance;
use crate::trace_hooks;

/// Nanoseconds between two rings where the notified thread could only run on the one core that both
/// have.
const RING_EVERY: u64 = 1_000_000;
/// Nanoseconds between two bookings: each is a system call, some 0.2 us.
const BOOK_EVERY: u64 = 1_000_000;

impl Instance {
    /// Others did something on the board that concerns a VP here, perhaps: one that runs takes a
    /// step, and one that waits for descriptors, and a core, is called if it was given that. By the
    /// kernel thread of the control socket.
    pub(crate) fn told(&self) {
        if board::shares_cores() {
            self.note_other_spaces();
        }
        for vp in &self.vps {
            if !vp.idle.cell.is_sleeping() {
                if vp.must_step() {
                    self.kernel.raise(vp.index as u32, Event::Preempted);
                }
            } else if vp.core_claim.holds.as_ref().is_some_and(Holds::is_mine) {
                vp.idle.wake();
            }
        }
    }
}

impl Vp {
    /// Its seat, while there is somebody to share the core with, or a share of CPU time. Owner
    /// only; the borrow ends before anything that asks for it again.
    #[allow(clippy::mut_from_ref)]
    fn seat(&self) -> Option<&mut Seat> {
        let seat = self.core_claim.seat.as_ref()?;
        if !board::has_to_ask() {
            return None;
        }
        // SAFETY: the owner's half; every use below is one call long.
        Some(unsafe { &mut *seat.get() })
    }

    /// Nothing may run here before [`await_core`](Vp::await_core).
    #[inline]
    pub(crate) fn has_lost_core(&self) -> bool {
        self.core_claim.lost.get()
    }

    /// Something of this level is to run, or runs on. If the core is another's it gives way at
    /// once, before it does anything.
    #[inline]
    pub(crate) fn ask_for_core(&self, level: u8) {
        if self.core_claim.seat.is_some() && (board::has_to_ask() || self.core_claim.lost.get()) {
            self.ask(level);
        }
    }

    /// While VPs keep to their cores, as they do where there are links, each asks for the one where
    /// it is at home; else for one that is free, or held by the lowest.
    fn choose_core(&self, seat: &mut Seat, level: u8, now: u64) {
        if let Some(core) = seat.better_core(level, self.home_core().is_none(), now) {
            trace_hooks::leaves_core(&self.trace, seat);
            seat.move_to(core);
        }
    }

    #[cold]
    fn ask(&self, level: u8) {
        let now = clock::monotonic();
        let Some(seat) = self.seat() else { return self.core_claim.lost.set(false) };
        self.choose_core(seat, level, now);
        let waits = seat.runs(level, now) == Outcome::Wait;
        trace_hooks::asked(&self.trace, seat, level, !waits, true);
        self.core_claim.lost.set(waits);
        if waits {
            self.resched_now();
        }
    }

    /// At a look at the clock: rings for what is due. Where there is one core, and this VP has it,
    /// a notified VP that is not above what runs here gets the core when this VP leaves it, which
    /// rings by itself: woken before, it would lie down again.
    #[inline]
    pub(crate) fn ring_at_look(&self, now: u64) {
        let shares_one =
            self.core_claim.seat.is_some() && cores::cores().len() == 1 && board::shares_cores();
        let waits = shares_one
            && now.saturating_sub(self.core_claim.rang.get()) < RING_EVERY
            && !remote_wake::is_unflushed_above(self.level.get());
        if !waits {
            self.core_claim.rang.set(now);
            remote_wake::flush(Caller::Anywhere);
        }
    }

    /// At a look at the clock: it books, and others may have come to the board, or want the core.
    #[inline]
    pub(crate) fn keep_core(&self, now: u64) {
        self.book_now_and_then(now);
        if self.core_claim.seat.is_some() && board::has_to_ask() {
            self.instance().note_other_spaces();
            if let Some(seat) = self.seat() {
                seat.tick(self.instance().on_clock(now));
            }
            if self.running().is_some() {
                self.ask(self.level.get());
            }
        }
    }

    /// Nothing is runnable here, or another kernel thread may carry the VP on: a VP that waits for
    /// the core gets it.
    pub(crate) fn leave_core(&self) {
        self.leave_core_after(|| ());
    }

    /// As [`leave_core`](Vp::leave_core), while the core is free: a notified VP goes before those
    /// that wait for it, if it is above them.
    pub(crate) fn leave_core_after<T>(&self, rings: impl FnOnce() -> T) -> T {
        self.core_claim.lost.set(false);
        let Some(seat) = self.seat() else { return rings() };
        trace_hooks::leaves_core(&self.trace, seat);
        let mut rang = None;
        seat.idle_after(|| rang = Some(rings()));
        rang.expect("it was called")
    }

    /// The calling kernel thread carries it now.
    pub(crate) fn note_thread(&self) {
        if let Some(seat) = &self.core_claim.seat {
            // SAFETY: the owner's half.
            unsafe { &*seat.get() }.on_thread();
        }
    }

    /// A microprocess got the VP on a kernel thread of its own, which says so first. A VP that took
    /// the core in between notified the one that handed the VP over, which has forgotten it.
    /// Async-signal-safe.
    pub(crate) fn recheck_core(&self) {
        fence(Ordering::SeqCst);
        if self.seat().is_some_and(|seat| !seat.is_mine()) {
            self.instance().kernel.raise(self.index as u32, Event::Preempted);
        }
    }

    /// By anyone: if it runs, it has to take a step, since the core is another's, or somebody asks
    /// whether it is there.
    pub(crate) fn must_step(&self) -> bool {
        self.core_claim.holds.as_ref().is_some_and(Holds::is_to_step)
    }

    /// On the kernel thread's own stack: waits until the core is its own, or there is nothing left
    /// to run.
    #[cold]
    pub(crate) fn await_core(&self) {
        while self.core_claim.lost.get() && !self.instance().stopped() {
            // What waits here is offered to other VPs of this address space; not where none of them
            // may run.
            if !self.seat().is_some_and(|seat| seat.is_barred()) {
                self.publish_idle();
            }
            self.look_around();
            let Some(level) = self.queue().waiting() else { return self.leave_core() };
            let now = clock::monotonic();
            let Some(seat) = self.seat() else { return self.core_claim.lost.set(false) };
            self.choose_core(seat, level, now);
            let has = seat.runs(level, now) == Outcome::Go || seat.look(now) == Outcome::Go;
            trace_hooks::asked(&self.trace, seat, level, has, false);
            if has {
                return self.core_claim.lost.set(false);
            }
            self.lie_down_for_core(seat.nap(now));
        }
        self.core_claim.lost.set(false);
    }

    /// Whether it may take work from other VPs: not while the address space's share is used up, and
    /// none of them may run.
    pub(crate) fn may_pull(&self) -> bool {
        self.core_claim.seat.is_none() || !board::is_barred()
    }

    /// Books what its kernel thread has used, if that was not done lately. Owner only.
    #[inline]
    pub(crate) fn book_now_and_then(&self, now: u64) {
        if now.saturating_sub(self.core_claim.booked.load(Ordering::Relaxed)) >= BOOK_EVERY {
            self.core_claim.booked.store(now, Ordering::Relaxed);
            // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
            let carrier = unsafe { KernelThread::here() };
            if self.running().is_some() {
                self.core_claim
                    .is_low
                    .store(carrier.kernel_slice.computing(self.level.get()), Ordering::Relaxed);
            }
            self.instance().book(self.index, carrier.take_cpu_time(), now);
        }
    }

    /// Called by the timekeeper for a VP that runs something of this level: whether it has not
    /// booked for long, and that makes a difference.
    pub(crate) fn has_to_book(&self, level: i32, now: u64) -> bool {
        let is_new = level < Priority::DEFAULT.get().into()
            && !self.core_claim.is_low.load(Ordering::Relaxed);
        (is_new || board::has_rules())
            && now.saturating_sub(self.core_claim.booked.load(Ordering::Relaxed)) >= BOOK_AT_LATEST
    }

    fn lie_down_for_core(&self, nap: Duration) {
        let instance = self.instance();
        let bed = if self.poller.is_used() { Bed::Descriptors } else { Bed::Word };
        self.idle.cell.lie_down(bed);
        let is_called = self.seat().is_none_or(|seat| seat.is_mine())
            || !self.queue().injector_is_empty()
            || self.priority_requests.pending()
            || self.row.head.has_posts()
            || self.lies_wrong(bed)
            || instance.stopped();
        if !is_called {
            let now = instance.now();
            let timer = self
                .timers()
                .next_wakeup(now)
                .map(|at| Duration::from_nanos(at.saturating_sub(now)));
            // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
            let thread = unsafe { KernelThread::here() }.events();
            thread.rest(true);
            let nap = timer.map_or(nap, |timer| timer.min(nap));
            self.idle.sleep(bed, &self.poller, Some(nap));
            thread.rest(false);
        }
        self.idle.get_up(bed);
        self.fire_timers(instance.now());
    }
}

impl Instance {
    /// Kernel threads of VP `vp` used so much CPU time. If the address space counts otherwise at
    /// the board by that, its VPs hear *Changed* (P0, 3.6).
    pub(crate) fn book(&self, vp: usize, nanoseconds: u64, now: u64) {
        if board::book(vp, nanoseconds, self.on_clock(now)) {
            self.counts_otherwise();
        }
    }

    #[cold]
    fn counts_otherwise(&self) {
        for (index, vp) in self.vps.iter().enumerate() {
            self.kernel.raise(index as u32, Event::Changed);
            // One that waits for its core asks for it anew.
            vp.idle.wake();
        }
    }
}
