//! Core arbitration: how a VP requests and releases its core at the board while other address
//! spaces are present (paper P0, section 3: one priority scale for the machine).
//!
//! Each VP has a home core. The core's slot on the board holds the VP that may run there
//! ([`kumihimo_arbiter::seat`]). A VP requests its core whenever it rebalances: at each switch, at
//! each clock check, and when it is notified. If the core belongs to another VP, the running
//! microprocess gives way as it would to a higher level. The VP then waits in its cell, on its
//! kernel thread's own stack. Its work stays in its queue, from which other VPs of this address
//! space can take it.
//!
//! Without other address spaces, or without a board, all of this is one comparison in places that
//! are slow anyway.
//!
//! CPU time of the kernel threads is booked about every millisecond, at a clock check. If a booking
//! changes the address space's effective levels (its share is used up, or feedback), all its VPs
//! get *Changed* and request their cores again.

use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use kumihimo_arbiter::row::Caller;
use kumihimo_arbiter::seat::{Outcome, Seat, SeatStatus};
use kumihimo_events::sched::Event;
use kumihimo_policy::Priority;

use super::Vp;
use crate::idle::{remote_wake, sleep};
use crate::kernel_thread::gs_record::KernelThread;
use crate::priority::core_claim::BOOK_AT_LATEST;
use crate::process::{board, clock, cores};
use crate::scheduler::instance::Instance;
use crate::trace_hooks;

/// Minimum interval between two flushes of notifications while both address spaces share a single
/// core and the notified thread could only run on that core, in nanoseconds.
const RING_EVERY: u64 = 1_000_000;
/// Minimum interval between two bookings, in nanoseconds. Each is a system call of some 0.2 us.
const BOOK_EVERY: u64 = 1_000_000;

impl Instance {
    /// Acts on a notification that the board has changed. Makes each running VP take a scheduling
    /// step if it must. Wakes each VP that sleeps for descriptors and for a core, if it was given
    /// the core. Called by the kernel thread of the control socket.
    pub(crate) fn told(&self) {
        if board::shares_cores() {
            self.note_other_spaces();
        }
        for vp in &self.vps {
            if !vp.idle.cell.is_sleeping() {
                if vp.must_step() {
                    self.kernel.raise(vp.index as u32, Event::Preempted);
                }
            } else if vp.core_claim.holds.as_ref().is_some_and(SeatStatus::is_mine) {
                vp.idle.wake();
            }
        }
    }
}

impl Vp {
    /// Returns the VP's seat if the core is shared with others or the address space has a share of
    /// CPU time. Owner only. The borrow must end before any call that borrows the seat again.
    #[allow(clippy::mut_from_ref)]
    fn seat(&self) -> Option<&mut Seat> {
        let seat = self.core_claim.seat.as_ref()?;
        if !board::has_to_ask() {
            return None;
        }
        // SAFETY: the owner's half; every borrow below lasts for one call.
        Some(unsafe { &mut *seat.get() })
    }

    /// Whether the VP must call [`await_core`](Vp::await_core) before it runs anything.
    #[inline]
    pub(crate) fn has_lost_core(&self) -> bool {
        self.core_claim.lost.get()
    }

    /// Requests the core for a microprocess of `level` that is about to run, or runs on. If the
    /// core belongs to another VP, the microprocess is asked to give way before it does anything.
    #[inline]
    pub(crate) fn ask_for_core(&self, level: u8) {
        if self.core_claim.seat.is_some() && (board::has_to_ask() || self.core_claim.lost.get()) {
            self.ask(level);
        }
    }

    /// Selects the core to request. While VPs are bound to their cores (as they are while links
    /// exist), that is the home core. Otherwise it may be a free core, or the core whose holder has
    /// the lowest level.
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

    /// Flushes due notifications, at a clock check.
    ///
    /// On a machine with one core that this VP holds, a notified VP of no higher level gets the
    /// core only when this VP leaves it. Leaving flushes by itself, so a flush before that would
    /// wake a VP that has to sleep again.
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

    /// At a clock check: books CPU time, and requests the core again if other address spaces have
    /// joined the board or request it.
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

    /// Releases the core to a VP that waits for it, because nothing is runnable here or another
    /// kernel thread may continue to carry the VP.
    pub(crate) fn leave_core(&self) {
        self.leave_core_after(|| ());
    }

    /// As [`leave_core`](Vp::leave_core), and calls `rings` while the core is free. A VP that
    /// `rings` notifies gets the core before those that wait for it if its level is higher.
    pub(crate) fn leave_core_after<T>(&self, rings: impl FnOnce() -> T) -> T {
        self.core_claim.lost.set(false);
        let Some(seat) = self.seat() else { return rings() };
        trace_hooks::leaves_core(&self.trace, seat);
        let mut rang = None;
        seat.idle_after(|| rang = Some(rings()));
        rang.expect("it was called")
    }

    /// Records at the seat that the calling kernel thread now carries the VP.
    pub(crate) fn note_thread(&self) {
        if let Some(seat) = &self.core_claim.seat {
            // SAFETY: the owner's half.
            unsafe { &*seat.get() }.on_thread();
        }
    }

    /// Raises *Preempted* if the core belongs to another VP.
    ///
    /// Called after a microprocess obtained the VP on its own kernel thread, which publishes itself
    /// first. A VP that took the core in between notified the previous carrier, which no longer
    /// carries this VP. Async-signal-safe.
    pub(crate) fn recheck_core(&self) {
        fence(Ordering::SeqCst);
        if self.seat().is_some_and(|seat| !seat.is_mine()) {
            self.instance().kernel.raise(self.index as u32, Event::Preempted);
        }
    }

    /// Whether the VP, if it runs, must take a scheduling step: the core belongs to another VP, or
    /// another VP probes whether this one is still there. Callable from any thread.
    pub(crate) fn must_step(&self) -> bool {
        self.core_claim.holds.as_ref().is_some_and(SeatStatus::is_to_step)
    }

    /// Waits on the kernel thread's own stack until the VP holds its core or has nothing left to
    /// run.
    #[cold]
    pub(crate) fn await_core(&self) {
        while self.core_claim.lost.get() && !self.instance().stopped() {
            // The queued work is offered to other VPs of this address space, unless none of them
            // may run.
            if !self.seat().is_some_and(|seat| seat.is_throttled()) {
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

    /// Whether the VP may take work from other VPs: false while the address space's share is used
    /// up, because none of its VPs may run.
    pub(crate) fn may_pull(&self) -> bool {
        self.core_claim.seat.is_none() || !board::is_barred()
    }

    /// Books the CPU time of the carrier if the last booking was long enough ago. Owner only.
    #[inline]
    pub(crate) fn book_now_and_then(&self, now: u64) {
        if now.saturating_sub(self.core_claim.booked.load(Ordering::Relaxed)) >= BOOK_EVERY {
            self.core_claim.booked.store(now, Ordering::Relaxed);
            // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
            let carrier = unsafe { KernelThread::here() };
            if self.running().is_some() {
                let gives_way = self.turn_clock.gives_way.load(Ordering::Relaxed);
                let is_low = carrier.kernel_slice.computing(self.level.get(), gives_way);
                self.core_claim.is_low.store(is_low, Ordering::Relaxed);
            }
            self.instance().book(self.index, carrier.take_cpu_time(), now);
        }
    }

    /// Whether a VP that runs something of `level` has not booked for long and the booking makes a
    /// difference. Called by the timekeeper.
    pub(crate) fn has_to_book(&self, level: i32, now: u64) -> bool {
        let is_new = level < Priority::DEFAULT.get().into()
            && !self.core_claim.is_low.load(Ordering::Relaxed);
        (is_new || board::has_rules())
            && now.saturating_sub(self.core_claim.booked.load(Ordering::Relaxed)) >= BOOK_AT_LATEST
    }

    fn lie_down_for_core(&self, nap: Duration) {
        let instance = self.instance();
        let mode = self.idle.announce_sleep(&self.poller);
        let is_called = self.seat().is_none_or(|seat| seat.is_mine())
            || sleep::is_called(mode, self.queue(), self.row.head, &self.poller)
            || self.priority_requests.pending()
            || instance.stopped();
        if !is_called {
            let now = instance.now();
            self.receive_moved_timers();
            let timer = self
                .timers()
                .next_wakeup(now)
                .map(|at| Duration::from_nanos(at.saturating_sub(now)));
            // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
            let thread = unsafe { KernelThread::here() }.events();
            thread.rest(true);
            let nap = timer.map_or(nap, |timer| timer.min(nap));
            self.idle.sleep(mode, &self.poller, Some(nap));
            thread.rest(false);
        }
        self.idle.get_up();
        self.fire_timers(instance.now());
    }
}

impl Instance {
    /// Books `nanoseconds` of CPU time that kernel threads of VP `vp` used. If that changes the
    /// effective levels of the address space at the board, all its VPs get *Changed* (paper P0,
    /// 3.6).
    pub(crate) fn book(&self, vp: usize, nanoseconds: u64, now: u64) {
        if board::book(vp, nanoseconds, self.on_clock(now)) {
            self.counts_otherwise();
        }
    }

    #[cold]
    fn counts_otherwise(&self) {
        // A retired VP waits for no core.
        for (index, vp) in self.vps.iter().enumerate().filter(|(_, vp)| !vp.is_retired()) {
            self.kernel.raise(index as u32, Event::Changed);
            // A VP that waits for its core has to request it again.
            vp.idle.wake();
        }
    }
}
