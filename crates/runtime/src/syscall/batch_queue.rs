//! System calls that wait with a virtual processor for their batch.

use std::cell::{Cell, UnsafeCell};
use std::ptr::NonNull;

use kumihimo_batch::{Batch, Call, Counters, LARGEST};

use crate::microprocess::record::Ref;
use crate::syscall::last_reads::LastReads;
use crate::syscall::trial::Trial;

/// Nanoseconds that a call waits for its batch to start, at most; on a virtual processor whose
/// microprocesses never leave, until these are interrupted.
pub(crate) const DEADLINE: u64 = 50_000;

/// Nanoseconds over which it is told whether traffic is thin: where more than one part in `SPARE`
/// was idle. Longer than a few that come by chance at once keep everybody busy.
const LOOK_EVERY: u64 = 20_000_000;

const SPARE: u64 = 20;

/// The virtual processor's part. Owner only, but for the counters.
pub(crate) struct BatchQueue {
    /// How many wait. Looked at in every switch.
    pub(crate) waiting: Cell<u32>,
    /// The highest level among them.
    pub(crate) level: Cell<u8>,
    /// When the first began to wait.
    pub(crate) since: Cell<u64>,
    pub(crate) calls: UnsafeCell<[NonNull<Call<'static>>; LARGEST]>,
    pub(crate) who: UnsafeCell<[Option<Ref>; LARGEST]>,
    pub(crate) batch: UnsafeCell<Option<Box<Batch>>>,
    /// Calls so far, and those of them that may be batched: the paper's alpha.
    pub(crate) asked: Cell<u64>,
    pub(crate) batchable: Cell<u64>,
    pub(crate) trial: Trial,
    /// There was time to spare lately: batches could save some of it, and would make callers wait
    /// for each other.
    pub(crate) thin: Cell<bool>,
    /// When that was looked at, and how long the virtual processor had been idle by then.
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
        // SAFETY: the owner's; the borrow ends here.
        unsafe { (*self.batch.get()).is_some() }
    }

    /// By when the first has to enter.
    #[inline]
    pub(crate) fn deadline(&self) -> Option<u64> {
        (self.waiting.get() > 0).then(|| self.since.get() + DEADLINE)
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
        // SAFETY: the owner's; no borrow is kept. There is room: a full batch is run before anybody
        // else is let in.
        unsafe {
            (*self.calls.get())[n as usize] = call;
            (*self.who.get())[n as usize] = Some(who);
        }
        self.waiting.set(n + 1);
    }

    /// At a look at the clock: whether traffic is thin.
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
    /// Takes `batch` into use, unless there is one by now. What is left over.
    pub(crate) fn install(&self, batch: Box<Batch>) -> Option<Box<Batch>> {
        // SAFETY: the owner's; the borrow ends here.
        let place = unsafe { &mut *self.batch.get() };
        if place.is_some() {
            return Some(batch);
        }
        *place = Some(batch);
        None
    }
}
