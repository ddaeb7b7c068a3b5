//! CPU time of microprocesses, attributed by sampling.
//!
//! The timekeeper reads the CPU clock of each kernel thread on which a microprocess runs at that
//! moment, and adds the time since the thread's last sample to that microprocess. A thread that
//! runs none at the moment keeps its time for its next sample. So the sums are exact, a switch
//! costs nothing, and the division among the microprocesses of one thread is an estimate. The
//! interval varies at random, so that it does not follow a period of the program.
//!
//! After T seconds, the estimate of a share p has the standard error sqrt(p (1-p) I / T), with I
//! the mean interval of [`INTERVAL`]: 1 point for 70 % after 10 s.

use std::sync::atomic::Ordering;

use kumihimo_arch::kernel_attributes::cpu_time_of;
use kumihimo_events::Slot;
use kumihimo_events::random;
use kumihimo_events::sched::ThreadState;

use crate::kernel_thread::gs_record::ANNOUNCED;
use crate::microprocess::identity;
use crate::scheduler::instance::Instance;
use crate::scheduler::thread_place;

/// Mean interval between two samples, in nanoseconds. Each is between half and one and a half.
const INTERVAL: u64 = 5_000_000;

impl Instance {
    /// Takes a sample if one is due. Returns the number of nanoseconds until the next one.
    /// Async-signal-safe.
    pub(in crate::upcall) fn sample_cpu(&self, now: u64) -> u64 {
        let at = self.sample_at.load(Ordering::Relaxed);
        if now < at {
            return at - now;
        }
        let next = random::interval(now, INTERVAL);
        self.sample_at.store(now + next, Ordering::Relaxed);
        for (slot, sampled) in self.kernel.slots().zip(&self.sampled_cpu) {
            let tid = slot.tid.load(Ordering::Acquire);
            let Some(runs) = self.runs_on(slot).filter(|_| tid != 0) else { continue };
            let Some(used) = cpu_time_of(tid) else { continue };
            let before = sampled.swap(used, Ordering::Relaxed);
            // Another kernel thread may have the slot by now.
            let grown = used.checked_sub(before).unwrap_or(used);
            // Under exact accounting, a turn is accounted at its end.
            if runs.vp.is_some_and(|vp| self.vps[vp as usize].sample_turn(runs.id, grown)) {
                continue;
            }
            if let Some(mp) = identity::find(runs.id) {
                mp.counters.add_cpu(&mp.is_counted, grown);
            }
        }
        for vp in &self.vps {
            vp.queue_lengths.count(self.queues.shown(vp.index).0 as u64);
        }
        next
    }

    /// Returns the microprocess that runs on the thread of `slot`, in user mode or in a short call.
    fn runs_on(&self, slot: &Slot) -> Option<Runs> {
        let id = slot.microprocess.load(Ordering::Relaxed);
        if id == 0 || id & ANNOUNCED != 0 {
            return None;
        }
        let vp = thread_place::vp_under(self, slot);
        let state = ThreadState::read(slot.state.load(Ordering::Relaxed));
        let is_running = vp.is_some() || state.is_some_and(|(state, _)| state == ThreadState::User);
        is_running.then_some(Runs { id, vp })
    }
}

/// What a kernel thread runs.
struct Runs {
    /// ID of the microprocess.
    id: u64,
    /// Index of its virtual processor, if it has one.
    vp: Option<u32>,
}
