//! For tests: a log of scheduling steps, with what each left waiting.
//!
//! Written only where levels differ, on paths that are not those of one level; nothing is written without
//! [`Builder::steps`](crate::runtime::Builder::steps).

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// One entry: of a VP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Which.
    pub vp: usize,
    /// What happened.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Something is about to come to it through its injector.
    Sent {
        /// The end of its id.
        id: u16,
        /// Its level.
        level: u8,
    },
    /// That is in.
    Put {
        /// The end of its id.
        id: u16,
    },
    /// It takes a step: what was noted of it until now may not be so any more. It may lose its core right here.
    Begins,
    /// It has taken a step, and runs something of this level.
    Runs {
        /// Its level.
        level: u8,
        /// One more than the highest level of what waits in its queues; 0: nothing.
        waits: u64,
        /// That was given away, and only the next VP can take it.
        given: bool,
        /// It had been asked for what it has.
        asked: bool,
    },
    /// It has taken a step, and found nothing to run.
    Idles,
}

/// A log of steps, in the order in which they were over.
#[derive(Debug)]
pub struct Steps {
    next: AtomicUsize,
    /// 0: not written (yet).
    entries: Box<[AtomicU64]>,
}

impl Steps {
    /// One with room for so many; what comes then is not noted.
    #[must_use]
    pub fn new(room: usize) -> Steps {
        Steps { next: AtomicUsize::new(0), entries: (0..room).map(|_| AtomicU64::new(0)).collect() }
    }

    pub(crate) fn note(&self, step: Step) {
        let (kind, id, level, waits, flags) = match step.what {
            What::Sent { id, level } => (1, id, level, 0, 0),
            What::Put { id } => (2, id, 0, 0, 0),
            What::Runs { level, waits, given, asked } => (3, 0, level, waits, u64::from(given) << 1 | u64::from(asked)),
            What::Idles => (4, 0, 0, 0, 0),
            What::Begins => (5, 0, 0, 0, 0),
        };
        let who = kind << 60 | u64::from(id) << 44 | (step.vp as u64) << 24;
        let word = who | waits << 16 | flags << 8;
        // AcqRel: what the log says earlier happened earlier.
        if let Some(entry) = self.entries.get(self.next.fetch_add(1, Ordering::AcqRel)) {
            entry.store(word | u64::from(level), Ordering::Release);
        }
    }

    /// Up to the first that is not there.
    #[must_use]
    pub fn read(&self) -> Vec<Step> {
        let read = |entry: &AtomicU64| {
            let word = entry.load(Ordering::Acquire);
            let (level, id) = (word as u8, (word >> 44) as u16);
            let what = match word >> 60 {
                1 => What::Sent { id, level },
                2 => What::Put { id },
                3 => {
                    What::Runs { level, waits: word >> 16 & 0xff, given: word >> 9 & 1 != 0, asked: word >> 8 & 1 != 0 }
                }
                4 => What::Idles,
                5 => What::Begins,
                _ => return None,
            };
            Some(Step { vp: (word >> 24 & 0xf_ffff) as usize, what })
        };
        self.entries.iter().map_while(read).collect()
    }
}
