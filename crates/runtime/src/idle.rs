//! A virtual processor without work: look, spin, sleep; and how it is woken.
//!
//! Runs on the kernel thread's own stack. The VP lies down in its cell ([`kumihimo_arbiter::row`]
//! has the protocol against lost wake-ups, and its models): on the cell's word as long as it waits
//! for no descriptors, since a futex costs a third less than an eventfd in an epoll set, and every
//! process that maps the cell can call it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use kumihimo_arbiter::row::{Bed, Cell, Reach, Row};
use kumihimo_events::preempt::Means;

use kumihimo_policy::Why;
use kumihimo_queue::Origin;

use crate::carrier::{Carrier, KernelThread};
use crate::readiness::Poller;
use crate::record::Mp;
use crate::vp::{Vp, bump};
use crate::{board, deadlock, intake};

/// How long an idle VP spins before it sleeps. About what a sleep and a wake-up cost on the same
/// core: longer spinning can lose at most twice the optimum (Karlin et al. 1990).
const SPIN: Duration = Duration::from_micros(15);
/// An idle VP beside busy ones looks in again after this long, then twice as long, ...
const FIRST_NAP: Duration = Duration::from_micros(200);
/// ... up to this: the bound on how long a lone runnable microprocess behind a computing one waits
/// for an idle VP.
const LONGEST_NAP: Duration = Duration::from_millis(10);

/// The least time, in nanoseconds, that an idle carrier stays with a VP before it serves another
/// one while kernel threads are short.
const SERVED: u64 = 2_000_000;

/// A VP that was up for less, in nanoseconds, was woken for less than it costs to wake it, ...
const WORTH_WAKING: u64 = 50_000;
/// ... and is not woken for a little work for this long.
const REST: u64 = 1_000_000;

/// Shared half of a VP's idling.
#[derive(Debug)]
pub(crate) struct Idle {
    pub(crate) cell: &'static Cell,
    reach: Reach,
    /// When it pays again to wake the VP for a little work, on the instance's clock.
    rested: AtomicU64,
    /// eventfd in the VP's epoll set.
    call: OwnedFd,
}

impl Idle {
    pub(crate) fn new(row: Row, vp: usize) -> io::Result<Idle> {
        // SAFETY: no pointers.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            let e = io::Error::last_os_error();
            let text = format!(
                "eventfd of a virtual processor: {e}; raise the descriptor limit (ulimit -n)"
            );
            return Err(io::Error::new(e.kind(), text));
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        let call = unsafe { OwnedFd::from_raw_fd(fd) };
        let cell = &row.cells[vp];
        cell.runs();
        Ok(Idle { cell, reach: row.reach, rested: AtomicU64::new(0), call })
    }

    pub(crate) fn raw(&self) -> i32 {
        self.call.as_raw_fd()
    }

    /// Whether it pays to wake the VP, which sleeps, for a little work: not if it had so little
    /// lately that it soon slept again.
    pub(crate) fn is_rested(&self, now: impl FnOnce() -> u64) -> bool {
        let rested = self.rested.load(Ordering::Relaxed);
        rested == 0 || now() >= rested
    }

    /// Sees to it that the VP looks at what was put before it.
    #[inline]
    pub(crate) fn wake(&self) {
        match self.cell.call() {
            None => {}
            Some(Bed::Word) => self.cell.wake(self.reach),
            Some(Bed::Descriptors) => self.write(),
        }
    }

    #[cold]
    fn write(&self) {
        let one = 1u64;
        // SAFETY: 8 live bytes. The only failure, EAGAIN at 2^64-1, means that it is readable
        // anyway.
        unsafe { libc::write(self.call.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Lying in its cell, in this bed, it sleeps until it is called, or so long. Owner only.
    pub(crate) fn sleep(&self, bed: Bed, poller: &Poller, at_most: Option<Duration>) {
        match bed {
            Bed::Word => self.cell.sleep(at_most, self.reach),
            Bed::Descriptors => poller.sleep(at_most),
        }
    }

    /// It is up. Owner only.
    pub(crate) fn get_up(&self, bed: Bed) {
        if self.cell.get_up() && bed == Bed::Descriptors {
            self.drain();
        }
    }

    fn drain(&self) {
        let mut n = 0u64;
        // SAFETY: 8 live bytes; EAGAIN is fine.
        unsafe { libc::read(self.call.as_raw_fd(), (&raw mut n).cast(), 8) };
    }
}

impl Carrier {
    /// On the kernel thread's own stack: runs microprocesses whenever there are any. Returns,
    /// masked, when the runtime stops or this kernel thread no longer carries a VP.
    pub(crate) fn run(mut self) {
        let mut nap = FIRST_NAP;
        let since = self.has_vp().then(|| self.vp().instance().now());
        while self.has_vp() {
            let vp = self.vp();
            let next = vp.promised.take().or_else(|| {
                if vp.has_lost_core() {
                    vp.await_core();
                }
                vp.look_around();
                vp.run_batch_if_due();
                vp.pick_or_pull()
            });
            let next = match next {
                Some(next) => {
                    nap = FIRST_NAP;
                    Some(next)
                }
                None if vp.instance().stopped() => break,
                None => {
                    self.kernel_thread().shows_nobody();
                    let found = vp.idle(&mut nap);
                    if found.is_none() && vp.is_less_in_need(since.unwrap_or(0)) {
                        return self.pass_on();
                    }
                    found
                }
            };
            if let Some(next) = next {
                if next.waits_elsewhere() {
                    vp.shows(next);
                    if vp.has_lost_core() {
                        // On its own kernel thread nothing would stop it: it waits here.
                        vp.make_ready(next, Why::Outranked, Origin::Yield);
                        continue;
                    }
                }
                match self.go_on_with(next) {
                    Some(carrier) => self = carrier,
                    None => return,
                }
            }
        }
        std::mem::forget(self);
    }
}

impl Carrier {
    /// Leaves the VP to the pool and goes there to serve a VP without a carrier. On the kernel
    /// thread's own stack.
    #[cold]
    fn pass_on(self) {
        let kt = self.kernel_thread();
        kt.events().pass_on();
        kt.put_down();
        // Masked, as in the pool.
        std::mem::forget(self);
    }
}

impl Vp {
    /// Whether its idle carrier, which has carried it since `since`, should serve another VP
    /// instead.
    fn is_less_in_need(&self, since: u64) -> bool {
        let instance = self.instance();
        instance.kernel.is_short_of_threads()
            && instance.now().saturating_sub(since) >= SERVED
            && instance.kernel.has_unserved_vp(self.index as u32)
    }

    /// Waits until there is something to do. May return nothing, for no reason.
    #[cold]
    fn idle(&self, nap: &mut Duration) -> Option<&'static Mp> {
        let instance = self.instance();
        let since = instance.now();
        let answered = self.has_answered();
        self.runs_nothing();
        let expects = self.leave_core_after(|| self.expects_posts());
        crate::tracing::idles(self, true);
        instance.idle_vps.fetch_add(1, Ordering::SeqCst);
        self.book_now_and_then(since);
        if instance.all_idle() {
            board::waits();
        }
        let (found, now) = self.spin(expects, since);
        let up = if found.is_some() {
            now
        } else {
            let ran = since.saturating_sub(self.up_since.get());
            let rested = if ran < WORTH_WAKING { since + REST } else { 0 };
            self.idle.rested.store(rested, Ordering::Relaxed);
            self.sleep(nap, now)
        };
        instance.idle_vps.fetch_sub(1, Ordering::SeqCst);
        instance.kernel.start_timekeeper();
        let idle = &self.counters.idle_ns;
        idle.store(idle.load(Ordering::Relaxed) + (up - since), Ordering::Relaxed);
        self.has_idled(answered, up - since);
        crate::tracing::idles(self, false);
        found
    }

    /// What came meanwhile, and the time. The clock is read as seldom as can be: a call through a
    /// gate has four of these ends of idling in it.
    fn spin(&self, expects: Option<u64>, since: u64) -> (Option<&'static Mp>, u64) {
        let instance = self.instance();
        if expects.is_none() && self.poller.is_used() && self.awaits_peer() {
            return self.await_peer(since);
        }
        if expects.is_none() && self.is_courteous(since) {
            return self.let_others_go_first(since);
        }
        // Alone there is nobody to wait for but the kernel, which tells by the descriptor; and a VP
        // with descriptors of its own hears from the kernel sooner than from its neighbours.
        if expects.is_none()
            && (instance.vps.len() == 1 || instance.quiet() || self.poller.is_used())
        {
            return (None, since);
        }
        let until = since + expects.unwrap_or(SPIN.as_nanos() as u64);
        // An answer from another core takes less time than many pauses.
        let pauses = if expects.is_some() { 1 } else { 16 };
        self.look_until(until, || (0..pauses).for_each(|_| std::hint::spin_loop()))
    }

    /// Looks, each time after `before`, until something came or it is `until`. Returns it, and the
    /// time.
    pub(crate) fn look_until(&self, until: u64, before: impl Fn()) -> (Option<&'static Mp>, u64) {
        self.idle.cell.looks();
        let found = loop {
            before();
            self.look_around();
            let next = self.pick_or_pull();
            let now = self.instance().now();
            if next.is_some() || now >= until {
                break (next, now);
            }
        };
        self.idle.cell.runs();
        found
    }

    /// Whether it lies where descriptors do not wake it, and has come to wait for one: a sticky
    /// microprocess had that watched ([`crate::sticky`]), and has called since or will.
    pub(crate) fn lies_wrong(&self, bed: Bed) -> bool {
        bed == Bed::Word && self.poller.is_used()
    }

    /// Returns when it was up again.
    fn sleep(&self, nap: &mut Duration, now: u64) -> u64 {
        let instance = self.instance();
        self.pool.top_up(instance.default_kind);
        let ebb = self.ebb();
        let bed = if self.poller.is_used() { Bed::Descriptors } else { Bed::Word };
        self.idle.cell.lie_down(bed);
        let mut wait =
            self.timers().rouse_at(now).map(|at| Duration::from_nanos(at.saturating_sub(now)));
        let is_visible = self.queue().has_visible_work();
        // What lies with others is not to be taken just now. Looking for it all the time would use
        // up what the share has of the next period, and of all after it.
        let is_barred = is_visible && self.queue().injector_is_empty() && !self.may_pull();
        let nothing_to_do = (!is_visible || is_barred)
            && self.queue().is_empty()
            && !self.requests.pending()
            && !self.row.head.has_posts()
            && !self.lies_wrong(bed)
            && !instance.stopped()
            && wait != Some(Duration::ZERO);
        if nothing_to_do {
            bump(&self.counters.sleeps);
            if is_barred || !instance.all_idle() {
                wait = Some(wait.map_or(*nap, |w| w.min(*nap)));
                *nap = (*nap * 2).min(LONGEST_NAP);
            } else {
                // A timer would cost a call through a gate a tenth of its time: while there are
                // gates, the timekeeper looks instead.
                let look = if intake::is_used() { None } else { deadlock::next_look(instance) };
                // Where nobody keeps the time, and there is no porter of gates, nobody stirs those
                // that sleep.
                let alone = instance.kernel.preemption() == Means::Off && !intake::is_used();
                let stir = (alone && board::others() != 0).then_some(board::STIR);
                wait = [wait, ebb, stir, look].into_iter().flatten().min();
            }
            // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
            let carrier = unsafe { KernelThread::here() };
            let beside_sticky = instance.sticky.now.load(Ordering::Relaxed) != 0;
            carrier.slice.before_sleep(self.level.get(), beside_sticky);
            let thread = carrier.events();
            thread.rest(true);
            self.idle.sleep(bed, &self.poller, wait);
            thread.rest(false);
        }
        self.idle.get_up(bed);
        let now = instance.now();
        self.up_since.set(now);
        self.fire_timers(now);
        now
    }
}
