//! System calls that wait at a VP for their batch.

use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;

use kumihimo_batch::{Batch, Call, Counters, LARGEST};

use crate::config::BATCH_DEADLINE;
use crate::microprocess::record::Ref;
use crate::syscall::last_reads::LastReads;
use crate::syscall::trial::Trial;

/// Interval, in nanoseconds, for deciding whether traffic is thin: whether more than one part in
/// `SPARE` was idle. Longer than a chance burst keeps all microprocesses busy.
const LOOK_EVERY: u64 = 20_000_000;

const SPARE: u64 = 20;

/// The waiting calls of a VP. Owner only, except for the counters.
pub(crate) struct BatchQueue {
    /// Number of waiting calls. Read in every switch.
    pub(crate) waiting: Cell<u32>,
    /// The highest level of the waiting calls.
    pub(crate) level: Cell<u8>,
    /// When the first call began to wait.
    pub(crate) since: Cell<u64>,
    /// Maximum time, in nanoseconds, that a call waits for its batch to start. On a VP whose
    /// microprocesses never leave, the call waits until they are interrupted.
    pub(crate) longest_wait: u64,
    pub(crate) calls: UnsafeCell<[NonNull<Call<'static>>; LARGEST]>,
    pub(crate) who: UnsafeCell<[Option<Ref>; LARGEST]>,
    pub(crate) batch: UnsafeCell<Option<Box<Batch>>>,
    /// Number of calls so far, and number of these that may be batched: their quotient is the
    /// paper's alpha.
    pub(crate) asked: Cell<u64>,
    pub(crate) batchable: Cell<u64>,
    pub(crate) trial: Trial,
    /// Whether the VP had idle time lately. Batches could save only idle time then, and would make
    /// callers wait for each other.
    pub(crate) thin: Cell<bool>,
    /// Time of the last such check, and total idle time of the VP by then.
    looked: Cell<(u64, u64)>,
    pub(crate) last_reads: LastReads,
    pub(crate) counters: Counters,
}

impl BatchQueue {
    pub(crate) fn new() -> BatchQueue {
        BatchQueue {
            waiting: Cell::new(0),
            level: Cell::new(0),
            since: Cell::new(0),
            longest_wait: BATCH_DEADLINE.as_nanos() as u64,
            calls: UnsafeCell::new([NonNull::dangling(); LARGEST]),
            who: UnsafeCell::new([const { None }; LARGEST]),
            batch: UnsafeCell::new(None),
            asked: Cell::new(0),
            batchable: Cell::new(0),
            trial: Trial::default(),
            thin: Cell::new(true),
            looked: Cell::new((0, 0)),
            last_reads: LastReads::new(),
            counters: Counters::default(),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        // SAFETY: accessed by the owner; the borrow ends here.
        unsafe { (*self.batch.get()).is_some() }
    }

    /// Returns the time by which the first call must enter the kernel.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<u64> {
        (self.waiting.get() > 0).then(|| self.since.get().saturating_add(self.longest_wait))
    }

    pub(crate) fn add(
        &self,
        call: NonNull<Call<'static>>,
        who: Ref,
        level: u8,
        now: impl FnOnce() -> u64,
    ) {
        let n = self.waiting.get();
        if n == 0 {
            self.since.set(now());
            self.level.set(level);
        }
        self.level.set(self.level.get().max(level));
        // SAFETY: accessed by the owner; no borrow is kept. There is room, because a full batch
        // runs before a further call is added.
        unsafe {
            (*self.calls.get())[n as usize] = call;
            (*self.who.get())[n as usize] = Some(who);
        }
        self.waiting.set(n + 1);
    }

    /// Decides whether traffic is thin. Called at a clock check.
    pub(crate) fn look(&self, now: u64, idle: u64) {
        let (at, before) = self.looked.get();
        if now.saturating_sub(at) >= LOOK_EVERY {
            self.thin.set((idle - before) * SPARE > now - at);
            self.looked.set((now, idle));
        }
    }

    pub(crate) fn share(&self) -> f64 {
        self.batchable.get() as f64 / self.asked.get().max(1) as f64
    }
}

impl BatchQueue {
    /// Installs `batch`, or returns it if the VP already has one.
    pub(crate) fn install(&self, batch: Box<Batch>) -> Option<Box<Batch>> {
        // SAFETY: accessed by the owner; the borrow ends here.
        let place = unsafe { &mut *self.batch.get() };
        if place.is_some() {
            return Some(batch);
        }
        *place = Some(batch);
        None
    }
}
