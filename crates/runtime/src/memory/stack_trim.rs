//! Stack trimming: an idle VP returns unused stack memory to the kernel. That is the memory of
//! pooled slots, and the unused part of the stacks of microprocesses in long waits for a
//! descriptor. An idle connection that once needed much stack keeps only the part in use.
//!
//! A stack is private to its microprocess: a waiting one can be woken at any moment, so no other
//! thread may take memory from below it. A VP that is about to sleep scans part of the records,
//! once a second. It wakes each microprocess that is still in the wait of the previous scan;
//! [`Source::wait`](crate::wait::readiness::Source::wait), which may return spuriously anyway, then
//! gives the memory back and waits again. A bit in the word that describes the wait marks it as
//! visited. The next wait overwrites the word, so a busy connection needs neither a timer nor a
//! further store.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use kumihimo_arch::stack;

use crate::kernel_thread::gs_record;
use crate::memory::{frames, pool};
use crate::microprocess::protocol::state::Phase;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::wait_reason::Wait;

/// Minimum time for which a slot is unused, or a wait lasts, before its memory is returned.
const EVERY: Duration = Duration::from_secs(1);
/// Number of records that one part of a round visits. Most of them are cold: some hundred
/// microseconds.
const PART: usize = 4096;
/// Maximum number of microprocesses that one part wakes. Each costs a switch and a system call.
const WOKEN: usize = 512;
/// Minimum memory that is kept below the frame that releases memory: for the functions that it
/// calls, and a red zone.
const MARGIN: usize = 4096;

/// Trim state shared by the VPs of an instance.
#[derive(Default)]
pub(crate) struct StackTrim {
    /// When the next part is due, on the instance's clock.
    at: AtomicU64,
    /// Whether more memory could be given back than was.
    more: AtomicBool,
    /// The record after which the round continues; null: from the oldest.
    after: AtomicPtr<Mp>,
    /// Number of waits for descriptors that keep their whole stacks, as found so far in this round.
    whole: AtomicUsize,
}

impl StackTrim {
    /// Returns memory to the kernel, at most once a second. Called by a VP that is about to sleep.
    /// Returns when to call it again, if there may be more. `wake` wakes a microprocess on the
    /// calling VP. Owner only.
    pub(crate) fn trim(&self, now: u64, wake: impl FnMut(Ref)) -> Option<Duration> {
        let at = self.at.load(Ordering::Relaxed);
        if now < at {
            // A microprocess has run since the last part, and may wait by now.
            return Some(Duration::from_nanos(at - now));
        }
        let next = now + EVERY.as_nanos() as u64;
        if self.at.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            let pools = pool::trim_unused();
            self.more.store(self.trim_waiting(wake) || pools, Ordering::Relaxed);
        }
        self.more.load(Ordering::Relaxed).then_some(EVERY)
    }

    /// Performs one part of the round. Returns whether another part may find something. Called by
    /// the VP that has moved `self.at`. If a part takes longer than a second, two may run at once,
    /// which only makes the round uneven.
    fn trim_waiting(&self, mut wake: impl FnMut(Ref)) -> bool {
        let mut woken = 0;
        let mut last = self.after.load(Ordering::Relaxed);
        for _ in 0..PART {
            // SAFETY: null, or a record, which lives for ever.
            let link = unsafe { last.as_ref() }.map_or(&pool::OLDEST, |mp| &mp.newer);
            // SAFETY: null or a record that `pool` stored; Acquire: its contents are initialised.
            let Some(mp) = (unsafe { link.load(Ordering::Acquire).as_ref() }) else {
                // The round is over. A microprocess that began to wait before this point in the
                // list is found in the next round, which the next sleep of a VP begins.
                self.after.store(std::ptr::null_mut(), Ordering::Relaxed);
                return self.whole.swap(0, Ordering::Relaxed) != 0;
            };
            last = std::ptr::from_ref(mp).cast_mut();
            let who = mp.reference();
            let kind = mp.wait_kind.load(Ordering::Relaxed);
            if kind & !(Wait::TIMED | Wait::LONG) != Wait::IO || mp.state.phase() != Phase::Parked {
                continue;
            }
            self.whole.fetch_add(1, Ordering::Relaxed);
            if kind & Wait::LONG != 0 {
                wake(who);
                woken += 1;
                if woken == WOKEN {
                    break;
                }
            } else {
                // If it was woken and waits again by now, this wait counts as longer than it is.
                let _ = mp.wait_kind.compare_exchange(
                    kind,
                    kind | Wait::LONG,
                    Ordering::Relaxed,
                    Ordering::Relaxed,
                );
            }
        }
        self.after.store(last, Ordering::Relaxed);
        true
    }
}

/// Whether the last wait of the calling microprocess, which has just returned from it, was long.
pub(crate) fn is_due() -> bool {
    gs_record::current_mp().is_some_and(|mp| mp.wait_kind.load(Ordering::Relaxed) & Wait::LONG != 0)
}

/// Returns the unused memory below the calling microprocess's stack pointer to the kernel.
#[cold]
#[inline(never)]
pub(crate) fn give_stack_back() {
    let Some(mp) = gs_record::current_mp() else { return };
    if !frames::are_all_in_slot(mp) {
        return;
    }
    let here = 0u8;
    let used = mp.slot_end().addr() - (&raw const here).addr();
    // SAFETY: a running microprocess, which is on its own stack as asked above, keeps nothing below
    // its stack pointer except the frames of calls from here, for which `MARGIN` is kept. A handler
    // or an injected call that interrupts this function has left its frames before the system call
    // begins.
    unsafe { stack::release_memory(mp.slot_end().addr(), mp.class.get(), used + MARGIN) };
}
