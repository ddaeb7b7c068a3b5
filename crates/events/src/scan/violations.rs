//! Checks each VP for the four violations of the event protocol ([`crate::watchdog`]).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::suspicion::{Age, Culprit, Suspect, Suspicion};
use crate::handoff::slot::{PROBE, Slot};
use crate::handoff::thread_state::Event;
use crate::linux::watch::Tid;
use crate::pool::kernel::Kernel;
use crate::pool::sched::UserScheduler;
use crate::report::fatal::{BoundedBackoff, fatal};
use crate::report::stderr_signal_safe::print_signal_safe;
use crate::watchdog::config::{OnMisbehaviour, Violation};
use crate::watchdog::state::OVERRIDDEN;

impl Kernel {
    /// Scans all VPs once. Returns false if none runs.
    pub(super) fn scan_vps(
        self: &Arc<Kernel>,
        suspects: &mut Vec<Suspect>,
        elapsed: Duration,
    ) -> bool {
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
                        "kumihimo: watchdog: virtual processor {vp} continues\n"
                    ));
                }
            }
            self.watchdog
                .overridden
                .store(self.watchdog.to_override.load(Ordering::Relaxed), Ordering::Release);
        }
        runs
    }

    pub(super) fn is_any_vp_running(&self) -> bool {
        let rests = |index: u32| self.watchdog.rests(index);
        let carried = self.carriers.all().any(|index| index != 0 && !rests(index));
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
        let index = self.carriers.of(vp);
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
        // The loading of another microprocess also ends the suspicion: the scheduler works.
        let what = [index.into(), times, rests.into(), slot.microprocess.load(Ordering::Relaxed)];
        let masked = &mut suspect.masked;
        // An unmask takes the probe. If the probe is gone, the slot was unmasked, and the present
        // mask may be a later one. The time then starts anew when the next scan finds the new
        // probe.
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

    /// Aborts if the slot has lost its VP although its kernel thread still carries it. A thread
    /// that takes a VP out of a slot clears the carrier immediately, so the slot was overwritten.
    /// If the kernel thread sleeps in a system call, neither that thread nor a source would detect
    /// this.
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
            let is_still_its = self.carriers.of(vp) == index && !slot.has_vp();
            if is_still_its
                && suspicion.age.ran + suspicion.age.slept >= BoundedBackoff::NANOSECONDS
            {
                fatal(format_args!(
                    "slot {index} has no VP, but its kernel thread carries VP {vp}, which no thread took"
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
            // Repeated at every scan until it succeeds: the slot may be masked for a moment.
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

    /// Requests a spare to take the VP of slot `index` away from its running carrier. The spare
    /// calls the user scheduler, which the watchdog must not wait for.
    fn take_from_running(self: &Arc<Kernel>, index: u32) {
        if self.prepare() {
            self.lock().overruled.push(index);
            self.wake_one();
        } else {
            print_signal_safe(format_args!(
                "kumihimo: watchdog: no kernel thread is available to take the virtual processor over\n"
            ));
        }
    }

    /// Replaces the thread whose call of `blocked` does not return. That thread no longer counts as
    /// waiting, and no longer polls.
    fn replace_unresponsive(self: &Arc<Kernel>, vp: u32, asked: u64, index: Option<u32>) {
        let mut pool = self.lock();
        // Under the lock: a thread that returns from now on decrements `stuck` under the same lock.
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
