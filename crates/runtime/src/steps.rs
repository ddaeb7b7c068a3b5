//! For tests: which microprocess became runnable, and what each VP ran, step by step.
//!
//! Written only where levels differ, on paths that are not those of one level; nothing is written without
//! [`Builder::steps`](crate::runtime::Builder::steps).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// What was noted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The microprocess is about to be runnable, at this level: at the latest when the VP that says so takes its next step.
    Ready(u64, u8),
    /// A VP took a step, after which it runs this microprocess at this level.
    Runs(usize, u64, u8),
    /// A VP took a step and found nothing to run.
    Idles(usize),
}

/// A log of steps, in the order in which they were over.
#[derive(Debug)]
pub struct Steps {
    next: AtomicUsize,
    /// Kind, VP and level; then the id. Kind 0: not written (yet).
    entries: Box<[[AtomicU64; 2]]>,
}

impl Steps {
    /// One with room for so many; what comes then is not noted.
    #[must_use]
    pub fn new(room: usize) -> Steps {
        Steps { next: AtomicUsize::new(0), entries: (0..room).map(|_| [AtomicU64::new(0), AtomicU64::new(0)]).collect() }
    }

    pub(crate) fn note(&self, step: Step) {
        let at = self.next.fetch_add(1, Ordering::Relaxed);
        let Some([what, who]) = self.entries.get(at) else { return };
        let (kind, vp, id, level) = match step {
            Step::Ready(id, level) => (1, 0, id, level),
            Step::Runs(vp, id, level) => (2, vp, id, level),
            Step::Idles(vp) => (3, vp, 0, 0),
        };
        who.store(id, Ordering::Relaxed);
        // Release: with the id.
        what.store(kind << 32 | (vp as u64) << 8 | u64::from(level), Ordering::Release);
    }

    /// Up to the first that is not there.
    #[must_use]
    pub fn read(&self) -> Vec<Step> {
        let read = |[what, who]: &[AtomicU64; 2]| {
            let word = what.load(Ordering::Acquire);
            let (vp, id, level) = ((word >> 8 & 0xff_ffff) as usize, who.load(Ordering::Relaxed), word as u8);
            match word >> 32 {
                1 => Some(Step::Ready(id, level)),
                2 => Some(Step::Runs(vp, id, level)),
                3 => Some(Step::Idles(vp)),
                _ => None,
            }
        };
        self.entries.iter().map_while(read).collect()
    }
}
