//! Recorder of the steps by which the two halves cooperate: the thirteen steps of P0, figure 6.
//!
//! For tests and for authors of user schedulers. Off unless
//! [`Settings::record`](crate::kernel::Settings::record) is set. Recording is async-signal-safe: it
//! increments an index and stores a word.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::handoff::slot::NO_PRIORITY;
use crate::handoff::thread_state::ThreadState;

/// The steps of figure 6, with the figure's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Step {
    /// 1: a microprocess waits in the kernel.
    Sleeps = 1,
    /// 2: *Blocked* is reported.
    Blocked = 2,
    /// 3: the user scheduler has noted that the microprocess sleeps, and replies. Recorded by the
    /// user scheduler.
    Answered = 3,
    /// 4: a kernel thread is called, with the priority of the reply.
    Called = 4,
    /// 5: *Resumed* is reported.
    Resumed = 5,
    /// 6: the next microprocess is chosen and loaded. Recorded by the user scheduler.
    Loaded = 6,
    /// 7: the condition that the microprocess waits for occurs. Recorded by the thread that causes
    /// it.
    Interrupt = 7,
    /// 8: the microprocess's kernel thread is woken.
    Woken = 8,
    /// 9: *Preempted* is reported.
    Preempted = 9,
    /// 10: the running microprocess is saved and queued, and the processor released. Recorded by
    /// the user scheduler.
    Yields = 10,
    /// 11: the surplus kernel thread returns to the pool.
    Reclaimed = 11,
    /// 12: *Unblocked* is reported.
    Unblocked = 12,
    /// 13: the next microprocess is chosen among the runnable ones, and continued. Recorded by the
    /// user scheduler.
    Continued = 13,
}

impl Step {
    const ALL: [Step; 13] = [
        Step::Sleeps,
        Step::Blocked,
        Step::Answered,
        Step::Called,
        Step::Resumed,
        Step::Loaded,
        Step::Interrupt,
        Step::Woken,
        Step::Preempted,
        Step::Yields,
        Step::Reclaimed,
        Step::Unblocked,
        Step::Continued,
    ];

    /// Returns the step's number in the figure.
    #[must_use]
    pub const fn number(self) -> u8 {
        self as u8
    }

    fn from_number(number: u8) -> Option<Step> {
        Step::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }
}

/// A recorded step.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Record {
    /// The step.
    pub step: Step,
    /// The slot of the kernel thread that the step concerns; 0: none.
    pub thread: u32,
    /// The kernel thread's state at this moment (figure 5), and whether a microprocess is bound to
    /// it.
    pub state: Option<(ThreadState, bool)>,
    /// The priority that belongs to the step, if any.
    pub priority: Option<u8>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?} thread {}", self.step.number(), self.step, self.thread)?;
        if let Some((state, bound)) = self.state {
            write!(f, " {state:?}{}", if bound { ", bound" } else { "" })?;
        }
        self.priority.map_or(Ok(()), |priority| write!(f, " priority {priority}"))
    }
}

/// The maximum number of recorded steps.
const MOST: usize = 4096;

/// One word for each step: the step, its priority plus one, the state, the thread. 0: not written
/// yet.
pub(crate) struct Recorder {
    next: AtomicUsize,
    words: Box<[AtomicU64]>,
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Recorder({} steps)", self.next.load(Ordering::Relaxed).min(MOST))
    }
}

impl Recorder {
    pub(crate) fn new() -> Recorder {
        Recorder {
            next: AtomicUsize::new(0),
            words: (0..MOST).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Records a step. `state` is the state word of the slot.
    pub(crate) fn add(&self, step: Step, thread: u32, state: u32, priority: i32) {
        let priority = priority.clamp(NO_PRIORITY, 63) + 1;
        let word = u64::from(step.number())
            | (priority as u64) << 8
            | u64::from(state & 0xffff) << 16
            | u64::from(thread) << 32;
        // The order of the indices is the order in time of steps that happen one before the other.
        if let Some(place) = self.words.get(self.next.fetch_add(1, Ordering::AcqRel)) {
            place.store(word, Ordering::Release);
        }
    }

    /// Returns the steps up to the first one that is still being written.
    pub(crate) fn all(&self) -> Vec<Record> {
        let words = self.words.iter().map(|word| word.load(Ordering::Acquire));
        words.map_while(|word| Some((Step::from_number(word as u8)?, word))).map(read).collect()
    }
}

fn read((step, word): (Step, u64)) -> Record {
    let thread = (word >> 32) as u32;
    let state = ThreadState::read((word >> 16) as u16 as u32).filter(|_| thread != 0);
    Record { step, thread, state, priority: ((word >> 8) as u8).checked_sub(1) }
}

#[cfg(test)]
mod tests;
