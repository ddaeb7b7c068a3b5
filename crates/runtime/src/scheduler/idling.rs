//! The idle loop of a virtual processor: check for work, spin, sleep.
//!
//! Runs on the kernel thread's own stack. [`crate::idle`] has the parts: the cell in which the VP
//! sleeps, its timers, its descriptors, and two alternatives to sleeping at once (yielding the core
//! and busy polling).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use kumihimo_arbiter::row::SleepMode;
use kumihimo_events::preempt::Means;
use kumihimo_policy::Why;
use kumihimo_queue::Origin;

use crate::idle::{busy_poll, remote_wake, yield_core};
use crate::kernel_thread::gs_record::KernelThread;
use crate::microprocess::record::Mp;
use crate::process::{board, cores};
use crate::scheduler::carrier::Carrier;
use crate::scheduler::vp::{Vp, bump};
use crate::trace_hooks;

/// How long an idle VP spins before it sleeps: about the cost of a sleep and a wake-up on the same
/// core. With that limit, spinning costs at most twice the optimum (Karlin et al. 1990).
const SPIN: Duration = Duration::from_micros(15);
/// First sleep of an idle VP beside busy ones, after which it checks for work again. Each further
/// sleep is twice as long, ...
const FIRST_NAP: Duration = Duration::from_micros(200);
/// ... up to this limit. It bounds how long a single runnable microprocess behind a computing one
/// waits for an idle VP.
const LONGEST_NAP: Duration = Duration::from_millis(10);
/// Minimum time, in nanoseconds, that an idle carrier stays with a VP before it serves another one
/// while kernel threads are short.
const SERVED: u64 = 2_000_000;
/// A VP that ran for less than this many nanoseconds was not worth the cost of waking it, ...
const WORTH_WAKING: u64 = 50_000;
/// ... and is not woken for a little work for this many nanoseconds.
const REST: u64 = 1_000_000;

impl Carrier {
    /// Runs microprocesses whenever there are any, on the kernel thread's own stack. Returns,
    /// masked, when the runtime stops or this kernel thread no longer carries a VP.
    pub(crate) fn run(mut self) {
        let mut nap = FIRST_NAP;
        let since = self.has_vp().then(|| self.vp().instance().now());
        while self.has_vp() {
            if self.vp().has_to_part() {
                match self.park_if_retired() {
                    Some(carrier) => self = carrier,
                    None => return,
                }
            }
            let vp = self.vp();
            let left_at = vp.left_at.take();
            let is_retired = vp.is_retired();
            let next = vp.promised.take().or_else(|| {
                if is_retired {
                    return None;
                }
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
                    self.kernel_thread().clear_shown();
                    let found = vp.idle(&mut nap, left_at);
                    if found.is_none() && vp.is_less_in_need(since.unwrap_or(0)) {
                        return self.pass_on();
                    }
                    found
                }
            };
            if let Some(next) = next {
                if next.waits_elsewhere() {
                    vp.publish_next(next);
                    if vp.has_lost_core() {
                        // On its own kernel thread nothing would stop it from running without the
                        // core. It waits in this VP's queue instead.
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
    /// Returns the VP to the pool and lets this kernel thread serve a VP that has no carrier. Runs
    /// on the kernel thread's own stack.
    #[cold]
    fn pass_on(self) {
        let kt = self.kernel_thread();
        kt.events().pass_on();
        kt.detach_vp();
        // The kernel thread stays masked, as it is in the pool.
        std::mem::forget(self);
    }
}

impl Vp {
    /// Whether the idle carrier, which has carried the VP since `since`, should serve another VP
    /// instead.
    fn is_less_in_need(&self, since: u64) -> bool {
        let instance = self.instance();
        instance.kernel.is_short_of_threads()
            && instance.now().saturating_sub(since) >= SERVED
            && instance.kernel.has_unserved_vp(self.index as u32)
    }

    /// Waits until there is something to run. May return `None` spuriously. `left_at` is the time
    /// if it was just read, or 0.
    #[cold]
    fn idle(&self, nap: &mut Duration, left_at: u64) -> Option<&'static Mp> {
        let instance = self.instance();
        let since = if left_at == 0 { instance.now() } else { left_at };
        self.set_coarse(since);
        let answered = self.is_peer_turn();
        let is_retired = self.is_retired();
        let count = if is_retired { &instance.resting_vps } else { &instance.idle_vps };
        let expects = self.begin_idle(since, count);
        let (found, now) = if is_retired { (None, since) } else { self.spin(expects, since) };
        let up = if found.is_some() {
            now
        } else {
            let ran = since.saturating_sub(self.up_since.get());
            let worth_waking_at = if ran < WORTH_WAKING { since + REST } else { 0 };
            self.idle.worth_waking_at.store(worth_waking_at, Ordering::Relaxed);
            self.sleep(nap, now)
        };
        self.set_coarse(up);
        self.time_wake_at(up);
        count.fetch_sub(1, Ordering::SeqCst);
        instance.kernel.start_timekeeper();
        let idle = &self.counters.idle_ns;
        idle.store(idle.load(Ordering::Relaxed) + (up - since), Ordering::Relaxed);
        self.note_peer_turn(answered, up - since);
        trace_hooks::idles(&self.trace, false);
        found
    }

    /// Publishes that nothing is runnable here, in `count` among others. Returns for how long
    /// spinning for a reply is worth while, if it is.
    pub(in crate::scheduler) fn begin_idle(&self, now: u64, count: &AtomicUsize) -> Option<u64> {
        self.publish_idle();
        let expects = self.leave_core_after(|| self.expects_posts());
        trace_hooks::idles(&self.trace, true);
        count.fetch_add(1, Ordering::SeqCst);
        self.book_now_and_then(now);
        if self.instance().all_idle() {
            board::waits();
        }
        expects
    }

    /// Spins, busy-polls or yields the core for a while. Returns the microprocess found, if any,
    /// and the time. Reads the clock as seldom as possible: a call through a gate ends four idle
    /// periods.
    fn spin(&self, expects: Option<u64>, since: u64) -> (Option<&'static Mp>, u64) {
        let instance = self.instance();
        if expects.is_none() && self.poller.is_used() && self.should_busy_poll() {
            return self.busy_poll_peer(since);
        }
        if expects.is_none() && self.may_yield_core(since) {
            return self.yield_core_once(since);
        }
        // If no other VP is active, only the kernel can make something runnable, and it does so
        // through a descriptor. For a VP with descriptors of its own, the kernel is the earlier
        // source, too.
        if expects.is_none()
            && (instance.vps.len() == 1 || instance.quiet() || self.poller.is_used())
        {
            return (None, since);
        }
        let until = since + expects.unwrap_or(SPIN.as_nanos() as u64);
        // A reply from another core arrives within fewer pauses than that.
        let pauses = if expects.is_some() { 1 } else { 16 };
        self.look_until(until, || (0..pauses).for_each(|_| std::hint::spin_loop()))
    }

    /// Repeats `before` and a check for work until a microprocess is found or the time is `until`.
    /// Returns the microprocess, if any, and the time.
    pub(crate) fn look_until(&self, until: u64, before: impl Fn()) -> (Option<&'static Mp>, u64) {
        self.idle.cell.set_polling();
        let found = loop {
            before();
            self.look_around();
            let next = self.pick_or_pull();
            let now = self.instance().now();
            if next.is_some() || now >= until {
                break (next, now);
            }
        };
        self.idle.cell.set_running();
        found
    }

    /// Sleeps until woken. Beside busy VPs it sleeps for at most `nap`, which it doubles for the
    /// next time. Returns the time at which the VP is up again.
    fn sleep(&self, nap: &mut Duration, now: u64) -> u64 {
        let instance = self.instance();
        self.pool.top_up(instance.default_kind);
        let trim = instance.stack_trim.trim(now, |who| self.wake(who));
        let is_retired = self.is_retired();
        let look =
            self.idle.prepare_sleep(self.queue(), self.row.head, &self.poller, is_retired, || {
                self.may_pull()
            });
        self.receive_moved_timers();
        let mut wait =
            self.timers().next_wakeup(now).map(|at| Duration::from_nanos(at.saturating_sub(now)));
        let nothing_to_do = !look.has_work
            && !self.priority_requests.pending()
            // It retired since it last looked, and parks instead.
            && (!is_retired || self.stays_retired.get())
            && !instance.stopped()
            && wait != Some(Duration::ZERO);
        if nothing_to_do {
            bump(&self.counters.sleeps);
            let is_last = instance.all_idle();
            if is_retired && !is_last {
                // Until a wake-up, a timer or a descriptor.
            } else if look.is_barred || !is_last {
                wait = Some(wait.map_or(*nap, |w| w.min(*nap)));
                *nap = (*nap * 2).min(LONGEST_NAP);
            } else {
                // Arming a timer for each sleep would make a call through a gate a tenth slower.
                // While gates are in use, the timekeeper checks for deadlocks instead.
                let deadlock_look =
                    if remote_wake::is_used() { None } else { instance.next_deadlock_look() };
                // Without a timekeeper and without a link poller, no thread wakes sleeping VPs for
                // a rescan of the board, so each VP rescans it.
                let alone = instance.kernel.preemption() == Means::Off && !remote_wake::is_used();
                let rescan = (alone && board::others() != 0).then_some(board::RESCAN_INTERVAL);
                wait = [wait, trim, rescan, deadlock_look].into_iter().flatten().min();
            }
            // SAFETY: the owner runs on a kernel thread of the runtime: GS is set.
            let carrier = unsafe { KernelThread::here() };
            let beside_sticky = instance.sticky.now.load(Ordering::Relaxed) != 0;
            carrier.kernel_slice.before_sleep(self.level.get(), beside_sticky);
            let thread = carrier.events();
            thread.rest(true);
            self.idle.sleep(look.mode, &self.poller, wait);
            thread.rest(false);
        }
        self.idle.get_up();
        let now = instance.now();
        self.up_since.set(now);
        if nothing_to_do && look.mode == SleepMode::Descriptors {
            // The end of the sleep has polled them.
            self.polled_ns.set(now);
        }
        self.fire_timers(now);
        now
    }
}

impl Vp {
    /// Whether the VP should yield its core now. Not where the board arbitrates the cores, because
    /// the board selects the next thread there.
    pub(crate) fn may_yield_core(&self, now: u64) -> bool {
        (1..=yield_core::FEW).contains(&self.poller.waited_for())
            && !board::shares_cores()
            && self.yield_core.is_due(now)
    }

    /// Yields the core a few times. Returns a microprocess that became runnable meanwhile, if any,
    /// and the time.
    #[cold]
    pub(crate) fn yield_core_once(&self, since: u64) -> (Option<&'static Mp>, u64) {
        self.idle.cell.set_polling();
        let (mut found, mut now) = (None, since);
        for _ in 0..yield_core::TIMES {
            kumihimo_arch::kernel::sched_yield();
            self.poller.poll_ready(false);
            self.look_around();
            found = self.pick_or_pull();
            let before = std::mem::replace(&mut now, self.instance().now());
            if !self.yield_core.note_duration(now - before, now) || found.is_some() {
                break;
            }
        }
        self.idle.cell.set_running();
        self.yield_core.note_result(found.is_some());
        (found, now)
    }
}

impl Vp {
    /// Whether this idle period ends a turn of a conversation with one peer. Called when the VP
    /// begins to idle.
    pub(crate) fn is_peer_turn(&self) -> bool {
        self.busy_poll
            .is_turn_over(self.counters.switches.load(Ordering::Relaxed), self.poller.heard())
    }

    /// Records that the idle period lasted for `nanoseconds`. `is_turn_over` is the earlier result
    /// of [`is_peer_turn`](Vp::is_peer_turn).
    pub(crate) fn note_peer_turn(&self, is_turn_over: bool, nanoseconds: u64) {
        self.busy_poll.note_idle(is_turn_over, nanoseconds);
    }

    /// Whether the VP waits for a single peer and no other thread needs the core.
    pub(crate) fn should_busy_poll(&self) -> bool {
        self.busy_poll.turns.get() >= busy_poll::TURNS
            && self.instance().all_idle()
            && cores::cores().len() > 1
            && !board::shares_cores()
    }

    /// Polls the descriptors for a limited time. Returns a microprocess that became runnable, if
    /// any, and the time.
    #[cold]
    pub(crate) fn busy_poll_peer(&self, since: u64) -> (Option<&'static Mp>, u64) {
        let found = self.look_until(since + busy_poll::AT_MOST.as_nanos() as u64, || {
            self.poller.poll_ready(false)
        });
        if found.0.is_none() {
            self.busy_poll.turns.set(0);
        }
        found
    }
}
