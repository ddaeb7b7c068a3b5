//! Watchdog: detects a user scheduler that violates the event protocol, whichever it is (P0, 3.4).
//!
//! A kernel thread of its own, which runs nothing of the user scheduler's, looks at the shared page
//! four times in each *bound*, and sleeps while nothing runs. (The timekeeper runs
//! [`tick`](crate::sched::UserScheduler::tick) and
//! [`blocked`](crate::sched::UserScheduler::blocked), and may itself be stuck.) Other threads do
//! nothing for it beyond a store where a VP rests, is asked for or raised.
//!
//! - *mask never cleared*: proof: `PROBE` is set in `pending` of a masked slot; the next unmask
//!   takes it. Still there after the bound of the kernel thread's own CPU time; overridden: the VP
//!   is written off.
//! - *Blocked never answered*: proof: the same call of `blocked` is under way after the bound;
//!   overridden: its kernel thread counts no longer as one of the pool, another takes its place;
//!   the VP is written off.
//! - *no yield after Preempted*: proof: raised, and the same microprocess runs on for the bound of
//!   CPU time although [`outranked`](crate::sched::UserScheduler::outranked) says that it should
//!   not; overridden: the VP is taken from its slot and goes to a spare, as if its kernel thread
//!   had blocked.
//! - *user scheduler itself blocked*: proof: as the first, but the kernel thread sleeps in the
//!   kernel, without having said so ([`KernelThread::rest`](crate::KernelThread::rest));
//!   overridden: as the first.
//!
//! *Written off*: the scheduler's data of that VP are in use, so nobody else may carry it. But
//! nobody waits for it either: [`Kernel::is_vp_stalled`] says that it is, and the user scheduler is
//! told ([`overridden`](crate::sched::UserScheduler::overridden)), so that what would go there goes
//! elsewhere. Both end when the mask is cleared, or the answer comes.
//!
//! Time is the kernel thread's own on a core, in user mode, and that in which it slept at both ends
//! of a look that it hardly ran in. One that gets no core collects neither; nor does a process that
//! is stopped, or in a debugger, since a look counts for two paces at most.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::config::{Distrust, OnMisbehaviour, Violation};
use crate::handoff::slot::{PROBE, Slot};
use crate::handoff::thread_state::Event;
use crate::linux::watch::{self, CpuClock, Tid};
use crate::loom::futex;
use crate::pool::kernel::Kernel;
use crate::pool::sched::UserScheduler;
use crate::report::fatal::{BoundedBackoff, fatal};
use crate::report::stderr_signal_safe::print_signal_safe;
use crate::watchdog::starvation::Starvation;

/// In [`VpRecord::blocked_call`]: it was overridden.
const OVERRIDDEN: u64 = 1 << 63;

/// What is known of a VP.
#[derive(Debug, Default)]
struct VpRecord {
    /// The call of `blocked` under way: the caller's thread ID, and in the upper half the number of
    /// the call; 0: none.
    blocked_call: AtomicU64,
    calls: AtomicU32,
    /// Preempted was raised since it was last looked at.
    raised: AtomicBool,
    /// Its kernel thread sits on it.
    written_off: AtomicBool,
}

/// In [`Alarm`].
const AWAKE: u32 = 0;
const ASLEEP: u32 = 1;
const ENDED: u32 = 2;

/// The futex word on which the watchdog sleeps.
#[derive(Debug)]
struct Alarm(AtomicU32);

impl Alarm {
    fn wait(&self, expected: u32, timeout: Option<Duration>) {
        futex::wait(&self.0, expected, timeout);
    }

    fn wake(&self) {
        futex::wake(&self.0);
    }
}

/// What the watchdog knows, and what others leave for it.
#[derive(Debug)]
pub(crate) struct Watchdog {
    on: AtomicU8,
    bound: AtomicU64,
    vps: Box<[VpRecord]>,
    /// By slot: how often it has begun and ended to rest; odd: it rests.
    rests: Box<[AtomicU32]>,
    alarm: Arc<Alarm>,
    started: AtomicBool,
    thread: Mutex<Option<JoinHandle<()>>>,
    pub(crate) violations: [AtomicU64; 4],
    /// Those found so far that are overridden.
    pub(super) to_override: AtomicU64,
    /// The same, once the user scheduler was told, so that nothing goes where it would stay.
    pub(crate) overridden: AtomicU64,
}

impl Watchdog {
    pub(crate) fn new(vps: u32, slots: u32) -> Watchdog {
        let watchdog = Watchdog {
            on: AtomicU8::new(0),
            bound: AtomicU64::new(0),
            vps: (0..vps).map(|_| VpRecord::default()).collect(),
            rests: (0..=slots).map(|_| AtomicU32::new(0)).collect(),
            alarm: Arc::new(Alarm(AtomicU32::new(AWAKE))),
            started: AtomicBool::new(false),
            thread: Mutex::default(),
            violations: [const { AtomicU64::new(0) }; 4],
            to_override: AtomicU64::new(0),
            overridden: AtomicU64::new(0),
        };
        watchdog.set(Distrust::default());
        watchdog
    }

    fn set(&self, distrust: Distrust) {
        let bound = distrust
            .bound
            .clamp(Duration::from_millis(Distrust::LEAST), Duration::from_millis(Distrust::MOST));
        self.bound.store(bound.as_nanos() as u64, Ordering::Relaxed);
        self.on.store(distrust.on as u8, Ordering::Relaxed);
    }

    pub(super) fn on(&self) -> OnMisbehaviour {
        use OnMisbehaviour::{End, Ignore, Override, Report};
        [Ignore, Report, Override, End][usize::from(self.on.load(Ordering::Relaxed))]
    }

    fn does(&self, what: OnMisbehaviour) -> bool {
        self.on.load(Ordering::Relaxed) >= what as u8
    }

    fn pace(&self) -> Duration {
        Duration::from_nanos(self.bound.load(Ordering::Relaxed) / 4)
    }

    /// Notes that the kernel thread of slot `index` rests, or no longer. Called by that thread,
    /// which afterwards executes a fence and calls [`wake_if_asleep`](Watchdog::wake_if_asleep) if
    /// it does not rest.
    pub(crate) fn rest(&self, index: u32, rests: bool) {
        let word = &self.rests[index as usize];
        let next = word.load(Ordering::Relaxed).wrapping_add(1);
        word.store(if rests { next | 1 } else { next & !1 }, Ordering::Relaxed);
    }

    /// Whether the kernel thread of slot `index` sleeps from its own free will.
    pub(crate) fn rests(&self, index: u32) -> bool {
        self.rests[index as usize].load(Ordering::Relaxed) & 1 == 1
    }

    /// Wakes the watchdog if it sleeps. The caller runs again, and noted that before a sequentially
    /// consistent fence. Async-signal-safe.
    #[inline]
    pub(crate) fn wake_if_asleep(&self) {
        if self.alarm.0.load(Ordering::Relaxed) == ASLEEP {
            self.wake();
        }
    }

    #[cold]
    fn wake(&self) {
        if self
            .alarm
            .0
            .compare_exchange(ASLEEP, AWAKE, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
        {
            self.alarm.wake();
        }
    }

    pub(crate) fn raised(&self, vp: u32) {
        self.vps[vp as usize].raised.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_written_off(&self, vp: u32) -> bool {
        self.vps[vp as usize].written_off.load(Ordering::Relaxed)
    }

    /// Notes that the calling kernel thread, which has `vp`, is about to call `blocked`.
    pub(crate) fn begin_blocked(&self, vp: u32) {
        let of = &self.vps[vp as usize];
        let number = u64::from(of.calls.fetch_add(1, Ordering::Relaxed) & 0x3fff_ffff) + 1;
        of.blocked_call.store(number << 32 | watch::this_tid() as u64, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.wake_if_asleep();
    }

    /// Notes that `blocked` has returned. Returns true if the call was overridden meanwhile.
    pub(crate) fn finish_blocked(&self, vp: u32) -> bool {
        self.vps[vp as usize].blocked_call.swap(0, Ordering::Relaxed) & OVERRIDDEN != 0
    }

    /// Waits for the watchdog's end.
    pub(crate) fn join(&self) {
        self.end();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // It cannot panic halfway through anything that others need.
            let _ = thread.join();
        }
    }

    fn end(&self) {
        self.alarm.0.store(ENDED, Ordering::SeqCst);
        self.alarm.wake();
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.end();
    }
}

/// The time that a thread ran and slept while a suspicion did not change.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Age {
    cpu: u64,
    user: u64,
    pub(super) ran: u64,
    pub(super) slept: u64,
}

impl Age {
    fn begin(tid: Tid) -> Age {
        let (cpu, user) =
            (CpuClock::of(tid).read().unwrap_or(0), watch::user_time(tid).unwrap_or(0));
        Age { cpu, user, ..Age::default() }
    }

    fn more(&mut self, tid: Tid, elapsed: u64) {
        let cpu = CpuClock::of(tid).read().unwrap_or(self.cpu);
        let ran = cpu.saturating_sub(std::mem::replace(&mut self.cpu, cpu));
        let user = watch::user_time(tid).unwrap_or(self.user);
        // What the kernel does for it is not its own doing: a call may spin there for a lock whose
        // holder gets no core.
        self.ran += ran.min(user.saturating_sub(self.user));
        self.user = self.user.max(user);
        // One that was about to run when it was looked at counts as asleep once; not one that gets
        // no core.
        if ran < elapsed / 2 && watch::is_asleep(tid) {
            self.slept += elapsed;
        }
    }
}

/// One kind of suspicion against a VP.
#[derive(Debug, Default)]
struct Suspicion {
    /// As long as it is this, it is the same one.
    what: Option<[u64; 4]>,
    age: Age,
    reported: bool,
}

impl Suspicion {
    fn begin(&mut self, what: [u64; 4], tid: Tid) {
        *self = Suspicion { what: Some(what), age: Age::begin(tid), reported: false };
    }

    fn drop(&mut self) {
        *self = Suspicion::default();
    }
}

#[derive(Debug, Default)]
struct Suspect {
    masked: Suspicion,
    blocked_call: Suspicion,
    runs_on: Suspicion,
    vp_missing: Suspicion,
}

/// The accused thread.
pub(super) struct Culprit<'a> {
    pub(super) vp: u32,
    pub(super) tid: Tid,
    /// The slot of its kernel thread, if it has one.
    pub(super) slot: Option<(u32, &'a Slot)>,
    pub(super) age: Age,
}

impl Kernel {
    /// How far the user scheduler is trusted, from now on.
    pub fn distrust(self: &Arc<Kernel>, distrust: Distrust) {
        self.watchdog.set(distrust);
        if self.carriers.iter().any(|index| index.load(Ordering::Relaxed) != 0) {
            self.start_watchdog();
        }
    }

    /// How often `case` was found.
    #[must_use]
    pub fn violations(&self, case: Violation) -> u64 {
        self.watchdog.violations[case as usize].load(Ordering::Acquire)
    }

    /// Starts the watchdog's thread, once and only if the configuration asks for reports.
    pub(crate) fn start_watchdog(self: &Arc<Kernel>) {
        let watchdog = &self.watchdog;
        if watchdog.started.load(Ordering::Relaxed)
            || !watchdog.does(OnMisbehaviour::Report)
            || watchdog.started.swap(true, Ordering::Relaxed)
        {
            return;
        }
        let (kernel, alarm) = (Arc::downgrade(self), watchdog.alarm.clone());
        let thread = std::thread::Builder::new()
            .name("kumihimo-dog".into())
            .stack_size(kumihimo_backtrace::STACK)
            .spawn(move || live(&kernel, &alarm));
        match thread {
            Ok(thread) => {
                *watchdog.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread)
            }
            Err(e) => eprintln!(
                "kumihimo: no kernel thread for the watchdog ({e}): a user scheduler that is stuck is not found out"
            ),
        }
    }

    /// Scans all VPs once. Returns false if none runs.
    fn scan_vps(self: &Arc<Kernel>, suspects: &mut Vec<Suspect>, elapsed: Duration) -> bool {
        let Some(scheduler) = self.user() else { return true };
        suspects.resize_with(self.vps as usize, Suspect::default);
        let elapsed = elapsed.min(self.watchdog.pace() * 2).as_nanos() as u64;
        let mut runs = false;
        for (vp, suspect) in (0u32..).zip(suspects) {
            runs |= self.check_blocked_call(vp, &mut suspect.blocked_call, elapsed);
            runs |= self.check_carrier(vp, suspect, elapsed, &*scheduler);
            let off = self.watchdog.does(OnMisbehaviour::Override)
                && (suspect.masked.reported || suspect.blocked_call.reported);
            if self.watchdog.vps[vp as usize].written_off.swap(off, Ordering::Relaxed) != off {
                scheduler.overridden(vp, off);
                if !off {
                    print_signal_safe(format_args!(
                        "kumihimo: watchdog: virtual processor {vp} goes on\n"
                    ));
                }
            }
            self.watchdog
                .overridden
                .store(self.watchdog.to_override.load(Ordering::Relaxed), Ordering::Release);
        }
        runs
    }

    fn is_any_vp_running(&self) -> bool {
        let rests = |index: u32| self.watchdog.rests(index);
        let carried = self
            .carriers
            .iter()
            .map(|index| index.load(Ordering::Relaxed))
            .any(|index| index != 0 && !rests(index));
        carried || self.watchdog.vps.iter().any(|of| of.blocked_call.load(Ordering::Relaxed) != 0)
    }

    /// Checks for [`Violation::BlockedNeverAnswered`].
    fn check_blocked_call(
        self: &Arc<Kernel>,
        vp: u32,
        suspicion: &mut Suspicion,
        elapsed: u64,
    ) -> bool {
        let asked =
            self.watchdog.vps[vp as usize].blocked_call.load(Ordering::Relaxed) & !OVERRIDDEN;
        let tid = asked as Tid;
        if asked == 0 {
            suspicion.drop();
        } else if suspicion.what != Some([asked, 0, 0, 0]) {
            suspicion.begin([asked, 0, 0, 0], tid);
        } else if self.is_due(suspicion, tid, elapsed, |age| age.ran + age.slept) {
            let index = (1..=self.page.slots())
                .find(|index| self.page.slot(*index).tid.load(Ordering::Relaxed) == tid as u32);
            let slot = index.map(|index| (index, self.page.slot(index)));
            self.report_violation(
                Violation::BlockedNeverAnswered,
                &Culprit { vp, tid, slot, age: suspicion.age },
            );
            suspicion.reported = true;
            if self.watchdog.does(OnMisbehaviour::Override) {
                self.replace_unresponsive(vp, asked, index);
            }
        }
        asked != 0
    }

    /// Checks for the other three violations.
    fn check_carrier(
        self: &Arc<Kernel>,
        vp: u32,
        suspect: &mut Suspect,
        elapsed: u64,
        scheduler: &dyn UserScheduler,
    ) -> bool {
        let index = self.carriers[vp as usize].load(Ordering::Relaxed);
        let rests = self.watchdog.rests[index as usize].load(Ordering::Relaxed);
        let of = &self.watchdog.vps[vp as usize];
        if index == 0 || rests & 1 == 1 {
            suspect.masked.drop();
            suspect.runs_on.drop();
            suspect.vp_missing.drop();
            return false;
        }
        let slot = self.page.slot(index);
        let (tid, times) =
            (slot.tid.load(Ordering::Relaxed) as Tid, slot.times.load(Ordering::Relaxed));
        let raised = of.raised.swap(false, Ordering::Relaxed)
            || slot.pending.load(Ordering::Relaxed) & Event::Preempted.bit() != 0;
        self.check_slot_vp(vp, (index, slot), &mut suspect.vp_missing, elapsed);
        if !slot.is_masked() {
            suspect.masked.drop();
            self.check_preempted(vp, (index, slot), raised, suspect, elapsed, scheduler);
            return true;
        }
        // Another microprocess is loaded, too: the scheduler works.
        let what = [index.into(), times, rests.into(), slot.microprocess.load(Ordering::Relaxed)];
        let masked = &mut suspect.masked;
        // A thread that has unmasked it since has taken the probe. (Set just now, it may be in the
        // mask after next: the time begins when it is found again.)
        if slot.pending.fetch_or(PROBE, Ordering::Relaxed) & PROBE == 0 {
            masked.drop();
        } else if masked.what != Some(what) {
            masked.begin(what, tid);
        } else if self.is_due(masked, tid, elapsed, |age| age.ran.max(age.slept)) {
            let case = if masked.age.ran >= masked.age.slept {
                Violation::MaskNeverCleared
            } else {
                Violation::SchedulerBlocked
            };
            self.report_violation(
                case,
                &Culprit { vp, tid, slot: Some((index, slot)), age: masked.age },
            );
            masked.reported = true;
        }
        true
    }

    /// A thread that takes a VP out of a slot records at once that it carries it. Else the slot was
    /// overwritten, and if its kernel thread now sleeps in a system call, neither that thread nor a
    /// source will find out.
    fn check_slot_vp(
        &self,
        vp: u32,
        (index, slot): (u32, &Slot),
        suspicion: &mut Suspicion,
        elapsed: u64,
    ) {
        let tid = slot.tid.load(Ordering::Relaxed) as Tid;
        let what = [index.into(), slot.times.load(Ordering::Relaxed), 0, 0];
        if slot.is_masked() || slot.has_vp() {
            suspicion.drop();
        } else if suspicion.what != Some(what) {
            suspicion.begin(what, tid);
        } else {
            suspicion.age.more(tid, elapsed);
            let is_still_its =
                self.carriers[vp as usize].load(Ordering::Relaxed) == index && !slot.has_vp();
            if is_still_its
                && suspicion.age.ran + suspicion.age.slept >= BoundedBackoff::NANOSECONDS
            {
                fatal(format_args!(
                    "slot {index} has no VP where its kernel thread carries {vp}, and nobody took it"
                ));
            }
        }
    }

    /// Checks for [`Violation::NoYield`].
    fn check_preempted(
        self: &Arc<Kernel>,
        vp: u32,
        (index, slot): (u32, &Slot),
        raised: bool,
        suspect: &mut Suspect,
        elapsed: u64,
        scheduler: &dyn UserScheduler,
    ) {
        let runs_on = &mut suspect.runs_on;
        if !raised && runs_on.what.is_none() {
            return;
        }
        let Some(moves) = scheduler.outranked(vp, slot.priority.load(Ordering::Relaxed)) else {
            return runs_on.drop();
        };
        let tid = slot.tid.load(Ordering::Relaxed) as Tid;
        let what = [
            index.into(),
            slot.times.load(Ordering::Relaxed),
            slot.microprocess.load(Ordering::Relaxed),
            moves,
        ];
        if runs_on.what != Some(what) {
            runs_on.begin(what, tid);
            return;
        }
        if self.is_due(runs_on, tid, elapsed, |age| age.ran) {
            self.report_violation(
                Violation::NoYield,
                &Culprit { vp, tid, slot: Some((index, slot)), age: runs_on.age },
            );
            runs_on.reported = true;
        }
        if runs_on.reported && self.watchdog.does(OnMisbehaviour::Override) {
            // At every look until it is done: it may be masked for a moment.
            self.take_from_running(index);
        }
    }

    fn is_due(
        &self,
        suspicion: &mut Suspicion,
        tid: Tid,
        elapsed: u64,
        time: fn(&Age) -> u64,
    ) -> bool {
        if suspicion.reported {
            return false;
        }
        suspicion.age.more(tid, elapsed);
        time(&suspicion.age) >= self.watchdog.bound.load(Ordering::Relaxed)
    }

    /// Has a spare take the VP of slot `index` away from its running carrier. The spare calls the
    /// user scheduler, for which the watchdog does not wait.
    fn take_from_running(self: &Arc<Kernel>, index: u32) {
        if self.prepare() {
            self.lock().overruled.push(index);
            self.wake_one();
        } else {
            print_signal_safe(format_args!(
                "kumihimo: watchdog: no kernel thread can take its virtual processor over\n"
            ));
        }
    }

    /// Replaces the thread whose call of `blocked` does not return: it no longer counts as waiting,
    /// and no longer polls.
    fn replace_unresponsive(self: &Arc<Kernel>, vp: u32, asked: u64, index: Option<u32>) {
        let mut pool = self.lock();
        // Under the lock: a thread that answers from here on takes itself off the count under it.
        let word = &self.watchdog.vps[vp as usize].blocked_call;
        if word
            .compare_exchange(asked, asked | OVERRIDDEN, Ordering::Relaxed, Ordering::Relaxed)
            .is_err()
        {
            return;
        }
        pool.stuck += 1;
        if pool.available() <= pool.ready.len() && !pool.dismissed {
            let _ = self.start(&mut pool).inspect_err(|e| self.exhausted(e));
        }
        drop(pool);
        if let Some(index) = index {
            let _ = self.poller.compare_exchange(index, 0, Ordering::AcqRel, Ordering::Relaxed);
        }
        self.wake_one();
    }
}

/// The watchdog's life.
fn live(kernel: &Weak<Kernel>, alarm: &Alarm) {
    // SAFETY: all zeros is a valid set.
    let mut all: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: a live set. The application's signals are for its own kernel threads; the C library
    // leaves its own out.
    unsafe {
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
    let (mut suspects, mut starvation, mut idle, mut last) =
        (Vec::new(), Starvation::default(), 0, Instant::now());
    while let Some(kernel) = kernel.upgrade() {
        let elapsed = last.elapsed();
        last += elapsed;
        let runs = kernel.scan_vps(&mut suspects, elapsed);
        if let Some(scheduler) = kernel.user() {
            kernel.scan_for_starvation(&mut starvation, elapsed, &*scheduler);
        }
        let pace = kernel.watchdog.pace();
        idle = if runs { 0 } else { idle + 1 };
        if idle < 2 {
            drop(kernel);
            alarm.wait(AWAKE, Some(pace));
        } else if alarm
            .0
            .compare_exchange(AWAKE, ASLEEP, Ordering::SeqCst, Ordering::SeqCst)
            .is_ok()
        {
            // Against those that began to run before they could see it.
            fence(Ordering::SeqCst);
            let runs = kernel.is_any_vp_running();
            drop(kernel);
            if !runs {
                alarm.wait(ASLEEP, None);
            }
            let _ = alarm.0.compare_exchange(ASLEEP, AWAKE, Ordering::SeqCst, Ordering::SeqCst);
            idle = 0;
            last = Instant::now();
        }
        if alarm.0.load(Ordering::SeqCst) == ENDED {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
