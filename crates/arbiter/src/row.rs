//! A row: the cells of one address space's virtual processors. A cell is where its VP lies down,
//! and where anyone calls it up again: those of its own address space, and, where the row is on a
//! board, those of others.
//!
//! The protocol against lost wake-ups, modelled in loom below: the sleeper says that it lies, then
//! looks once more at everything that others may have filled; the waker fills, then looks whether
//! the VP lies. Both look after a full fence, so one of them sees the other.
//!
//! Other processes can write anything on a board. So a cell is only ever compared with what it may
//! say, and a wrong word costs its own VP time: see [`Cell::claim_wake`].

use std::time::Duration;

use crate::atomic::{AtomicU32, AtomicU64, Ordering, fence};

/// It runs microprocesses: it looks around at its next step.
const RUNNING: u32 = 0;
/// It has nothing to do and looks for something, all the time.
const POLLING: u32 = 1;
/// It waits on its word (futex), or is about to.
const ON_FUTEX: u32 = 2;
/// It waits for descriptors, or is about to.
const ON_DESCRIPTORS: u32 = 3;
/// Somebody has called it; it is on its way up.
const WOKEN: u32 = 4;

/// Where a VP lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SleepMode {
    /// On the word of its cell: [`Cell::wake`] gets it up.
    Futex,
    /// Where only its own address space can wake it: a descriptor that it waits for.
    Descriptors,
}

/// A virtual processor's place in its row. All zero: it runs.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Cell {
    word: AtomicU32,
    /// The core that its VP ran on when it lay down, plus one.
    core: AtomicU32,
    /// When it last looked at what others put before it, CLOCK_MONOTONIC nanoseconds.
    last_poll: AtomicU64,
    /// The core that it waits for and its level's mark ([`crate::slot`]); 0: none.
    waits: AtomicU32,
    /// The kernel thread that carries it, 0 if unknown.
    thread: AtomicU32,
    /// CPU time that it used, nanoseconds.
    used: AtomicU64,
}

impl Default for Cell {
    fn default() -> Cell {
        Cell::new()
    }
}

impl Cell {
    /// Of a VP that runs.
    #[must_use]
    pub fn new() -> Cell {
        Cell {
            word: AtomicU32::new(RUNNING),
            core: AtomicU32::new(0),
            last_poll: AtomicU64::new(0),
            waits: AtomicU32::new(0),
            thread: AtomicU32::new(0),
            used: AtomicU64::new(0),
        }
    }

    /// The owner has nothing to do and looks for something until it lies down or
    /// [runs](Cell::set_running).
    pub fn set_polling(&self) {
        self.word.store(POLLING, Ordering::Relaxed);
    }

    /// The owner runs microprocesses, from a state in which nobody calls it.
    pub fn set_running(&self) {
        self.word.store(RUNNING, Ordering::Relaxed);
    }

    /// The owner is about to sleep; it must look at everything once more after this.
    pub fn prepare_sleep(&self, mode: SleepMode) {
        self.word.store(
            if mode == SleepMode::Futex { ON_FUTEX } else { ON_DESCRIPTORS },
            Ordering::Relaxed,
        );
        fence(Ordering::SeqCst);
    }

    /// The owner is up again, and runs. True if somebody called it.
    pub fn finish_sleep(&self) -> bool {
        self.word.swap(RUNNING, Ordering::Acquire) == WOKEN
    }

    /// By its own address space, after something was put where the VP looks: how the caller has to
    /// wake it, if it has to.
    ///
    /// A process that scribbles over the cell can lose a call: the VP looks again on its own when
    /// its nap is over, and is then none the worse.
    #[must_use]
    pub fn claim_wake(&self) -> Option<SleepMode> {
        fence(Ordering::SeqCst);
        match self.word.load(Ordering::Relaxed) {
            ON_FUTEX => self.claim_wake_from(ON_FUTEX).then_some(SleepMode::Futex),
            ON_DESCRIPTORS => {
                self.claim_wake_from(ON_DESCRIPTORS).then_some(SleepMode::Descriptors)
            }
            _ => None,
        }
    }

    /// By another address space: [`SleepMode::Futex`], which the caller has to [wake](Cell::wake);
    /// or [`SleepMode::Descriptors`], and nothing is changed: only a thread that can wake it may
    /// call it, or no call would reach it any more.
    #[must_use]
    pub fn claim_wake_remote(&self) -> Option<SleepMode> {
        fence(Ordering::SeqCst);
        match self.word.load(Ordering::Relaxed) {
            ON_FUTEX => self.claim_wake_from(ON_FUTEX).then_some(SleepMode::Futex),
            ON_DESCRIPTORS => Some(SleepMode::Descriptors),
            _ => None,
        }
    }

    fn claim_wake_from(&self, lies: u32) -> bool {
        self.word.compare_exchange(lies, WOKEN, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// A hint: it may be otherwise by now.
    #[inline]
    pub fn is_sleeping(&self) -> bool {
        matches!(self.word.load(Ordering::Relaxed), ON_FUTEX | ON_DESCRIPTORS)
    }

    /// Whether others than its own address space can wake it. A hint.
    #[cfg(not(loom))]
    fn is_on_futex(&self) -> bool {
        self.word.load(Ordering::Relaxed) == ON_FUTEX
    }

    /// Whether it looks for something to do, so that it need not be called. A hint.
    pub fn is_polling(&self) -> bool {
        matches!(self.word.load(Ordering::Relaxed), POLLING | WOKEN)
    }

    /// The owner looked, at this time (CLOCK_MONOTONIC, nanoseconds).
    pub fn set_last_poll(&self, now: u64) {
        self.last_poll.store(now, Ordering::Relaxed);
    }

    /// This kernel thread (its id in its own process) carries the owner now.
    pub fn set_thread(&self, thread: u32) {
        self.thread.store(thread, Ordering::Relaxed);
    }

    /// The kernel thread that carries the owner, if it said so.
    pub fn thread(&self) -> Option<u32> {
        let thread = self.thread.load(Ordering::Relaxed);
        (1..=i32::MAX as u32).contains(&thread).then_some(thread)
    }

    /// CPU time that the owner booked, nanoseconds.
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    pub(crate) fn add_used(&self, nanoseconds: u64) {
        self.used.fetch_add(nanoseconds, Ordering::Relaxed);
    }

    pub(crate) fn waits(&self) -> u32 {
        self.waits.load(Ordering::Relaxed)
    }

    pub(crate) fn set_waits(&self, waits: u32) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    /// Another VP's from now on.
    pub(crate) fn clear(&self) {
        for word in [&self.word, &self.core, &self.waits, &self.thread] {
            word.store(0, Ordering::Relaxed);
        }
        self.last_poll.store(0, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
    }

    /// When the owner last looked.
    pub fn last_poll(&self) -> u64 {
        self.last_poll.load(Ordering::Relaxed)
    }

    /// The owner lies on this core.
    pub fn set_core(&self, core: u32) {
        self.core.store(core.wrapping_add(1), Ordering::Relaxed);
    }

    /// Where the owner lay down last, if it said so.
    pub fn core(&self) -> Option<u32> {
        self.core.load(Ordering::Relaxed).checked_sub(1)
    }
}

#[cfg(not(loom))]
impl Cell {
    /// The owner, lying on its word, sleeps until it is called, or so long. May return early.
    pub fn sleep(&self, at_most: Option<Duration>, reach: Reach) {
        let wait = at_most.map(|d| libc::timespec {
            tv_sec: d.as_secs() as i64,
            tv_nsec: i64::from(d.subsec_nanos()),
        });
        let wait = wait.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        // SAFETY: a live word, and a live timespec or none. FUTEX_WAIT: futex(2). An early return
        // is allowed for, so errors need no look.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word.as_ptr(),
                reach.of(libc::FUTEX_WAIT),
                ON_FUTEX,
                wait,
                0,
                0,
            )
        };
    }

    /// Gets the owner up that [`call`](Cell::claim_wake) found on its word.
    pub fn wake(&self, reach: Reach) {
        // SAFETY: a live word. FUTEX_WAKE: futex(2).
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                self.word.as_ptr(),
                reach.of(libc::FUTEX_WAKE),
                1,
                0,
                0,
                0,
            )
        };
    }
}

/// What all of an address space's virtual processors have in common: what was put before them from
/// outside, 64 kinds of it.
///
/// A bit says where to look and nothing more. It may be set for nothing, and a scribbling process
/// can clear it: then its owner finds what is there when it next looks at everything.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct Head {
    posted: AtomicU64,
}

impl Default for Head {
    fn default() -> Head {
        Head::new()
    }
}

impl Head {
    /// With nothing posted.
    #[must_use]
    pub fn new() -> Head {
        Head { posted: AtomicU64::new(0) }
    }

    /// Something was put where `bit` says, before this. Then somebody has to be
    /// [called](Cell::claim_wake), or to look.
    #[inline]
    pub fn post(&self, bit: u32) {
        let bit = 1 << (bit & 63);
        // A sender that sees it set from before has put its own there before the owner took the
        // bit: the fence orders that against the load, and the owner's swap comes, with another
        // one, before it looks.
        fence(Ordering::SeqCst);
        if self.posted.load(Ordering::Relaxed) & bit == 0 {
            self.posted.fetch_or(bit, Ordering::AcqRel);
        }
    }

    /// Whether anything is posted. A hint, unless a fence comes before it.
    #[inline(always)]
    pub fn has_posts(&self) -> bool {
        self.posted.load(Ordering::Relaxed) != 0
    }

    /// Takes what is posted: the caller looks everywhere that it says, after this.
    #[inline]
    pub fn take_posts(&self) -> u64 {
        let posts = self.posted.swap(0, Ordering::AcqRel);
        fence(Ordering::SeqCst);
        posts
    }
}

/// The row of an address space: its own, or another's.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What is posted.
    pub head: &'static Head,
    /// A cell a virtual processor.
    pub cells: &'static [Cell],
    /// The others that see it.
    pub reach: Reach,
}

/// How an address space heard, or hears, that something was posted for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RingOutcome {
    /// Somebody there looks already, or will at its next step.
    Awake,
    /// A virtual processor was woken.
    Woken,
    /// All run, and none has looked lately: only their own address space can interrupt one of them.
    Busy,
    /// One sleeps where only its own address space can wake it, and has to be told another way.
    Unreachable,
}

/// The ringing thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// It is about to wait, on this core.
    Waits(u32),
    /// It goes on, on this core.
    Continues(u32),
    /// It does not know where it runs.
    Anywhere,
}

impl Caller {
    #[cfg(not(loom))]
    fn prefers(self, cell: &Cell) -> bool {
        match self {
            Caller::Waits(core) => cell.core() == Some(core),
            Caller::Continues(core) => cell.core().is_some_and(|lies| lies != core),
            Caller::Anywhere => false,
        }
    }
}

/// One that has looked within so many nanoseconds looks again soon: it switches.
#[cfg(not(loom))]
const SOON: u64 = 200_000;

#[cfg(not(loom))]
impl Row {
    /// Of an address space that nobody else sees. Kept for good.
    #[must_use]
    pub fn private(vps: usize) -> Row {
        let cells: Vec<Cell> = (0..vps).map(|_| Cell::new()).collect();
        Row { head: Box::leak(Box::default()), cells: cells.leak(), reach: Reach::Private }
    }

    /// After a [post](Head::post): sees to it that a virtual processor of this row looks.
    ///
    /// By another address space. Never wakes a second one while one is up that will look. Of
    /// several that lie, wakes the one that lay down on the caller's core if the caller is about to
    /// wait: the kernel goes over to it then, without waking another core. Else rather another one.
    pub fn ring(&self, caller: Caller, now: impl FnOnce() -> u64) -> RingOutcome {
        let now = std::cell::LazyCell::new(now);
        let mut lying: Option<&Cell> = None;
        fence(Ordering::SeqCst);
        for cell in self.cells {
            if cell.is_sleeping() {
                let worth = |cell: &Cell| (cell.is_on_futex(), caller.prefers(cell));
                if lying.is_none_or(|best| worth(cell) > worth(best)) {
                    lying = Some(cell);
                }
            } else if cell.is_polling()
                || cell.last_poll() != 0 && now.saturating_sub(cell.last_poll()) < SOON
            {
                return RingOutcome::Awake;
            }
        }
        match lying.map(|cell| (cell, cell.claim_wake_remote())) {
            None => RingOutcome::Busy,
            Some((_, None)) => RingOutcome::Awake,
            Some((cell, Some(SleepMode::Futex))) => {
                cell.wake(self.reach);
                RingOutcome::Woken
            }
            Some((_, Some(SleepMode::Descriptors))) => RingOutcome::Unreachable,
        }
    }
}

/// The processes that can reach a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// This address space only.
    Private,
    /// All that map its board.
    Shared,
}

impl Reach {
    #[cfg(not(loom))]
    fn of(self, operation: i32) -> i32 {
        if self == Reach::Private { operation | libc::FUTEX_PRIVATE_FLAG } else { operation }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// It can be called by its own address space as before.
    #[test]
    fn one_that_waits_for_descriptors_is_left_alone_by_others() {
        let row = Row::private(2);
        row.cells.iter().for_each(|cell| cell.prepare_sleep(SleepMode::Descriptors));
        for _ in 0..2 {
            assert_eq!(row.ring(Caller::Anywhere, || 0), RingOutcome::Unreachable);
            assert_eq!(row.cells[0].claim_wake_remote(), Some(SleepMode::Descriptors));
        }
        assert_eq!(row.cells[0].claim_wake(), Some(SleepMode::Descriptors));
    }

    #[test]
    fn wakeable_vps_are_preferred() {
        let row = Row::private(3);
        row.cells.iter().for_each(|cell| cell.set_core(1));
        row.cells.iter().for_each(|cell| cell.prepare_sleep(SleepMode::Descriptors));
        row.cells[1].prepare_sleep(SleepMode::Futex);
        row.cells[1].set_core(2);
        assert_eq!(row.ring(Caller::Waits(1), || 0), RingOutcome::Woken);
        assert_eq!(row.cells[1].claim_wake(), None);
        // That one is up and looks.
        assert_eq!(row.ring(Caller::Waits(1), || 0), RingOutcome::Awake);
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicBool;

    /// Two post the same bit, the owner takes and looks once, and once more before it lies down:
    /// what was put there is seen, or it is called.
    #[test]
    fn no_lost_post() {
        loom::model(|| {
            let shared = Arc::new((
                Head::new(),
                Cell::new(),
                [AtomicBool::new(false), AtomicBool::new(false)],
            ));
            let posters: Vec<_> = (0..2)
                .map(|i| {
                    let shared = shared.clone();
                    loom::thread::spawn(move || {
                        shared.2[i].store(true, Ordering::Relaxed);
                        shared.0.post(3);
                        shared.1.claim_wake_remote().is_some()
                    })
                })
                .collect();
            let mut seen = [false; 2];
            let mut look = || {
                if shared.0.has_posts() && shared.0.take_posts() != 0 {
                    for i in 0..2 {
                        seen[i] |= shared.2[i].load(Ordering::Relaxed);
                    }
                }
            };
            look();
            shared.1.prepare_sleep(SleepMode::Futex);
            look();
            let called = posters.into_iter().fold(false, |called, p| called | p.join().unwrap());
            assert!(called || seen == [true; 2], "asleep with a post, and nobody called");
        });
    }

    /// One waker, one sleeper: the work is seen before the sleep, or the sleeper is called.
    #[test]
    fn no_lost_wake_up() {
        loom::model(|| {
            let cell = Arc::new(Cell::new());
            let work = Arc::new(AtomicBool::new(false));
            let waker = {
                let (cell, work) = (cell.clone(), work.clone());
                loom::thread::spawn(move || {
                    work.store(true, Ordering::Relaxed);
                    cell.claim_wake()
                })
            };
            cell.prepare_sleep(SleepMode::Futex);
            let saw = work.load(Ordering::Relaxed);
            let called = waker.join().unwrap();
            assert!(saw || called == Some(SleepMode::Futex), "asleep with work and nobody called");
            assert_eq!(cell.finish_sleep(), called.is_some());
        });
    }

    /// Two wakers: at most one of them makes the system call.
    #[test]
    fn one_call_is_enough() {
        loom::model(|| {
            let cell = Arc::new(Cell::new());
            let wakers: Vec<_> = (0..2)
                .map(|_| {
                    let cell = cell.clone();
                    loom::thread::spawn(move || cell.claim_wake().is_some())
                })
                .collect();
            cell.prepare_sleep(SleepMode::Descriptors);
            let calls = wakers.into_iter().map(|w| u32::from(w.join().unwrap())).sum::<u32>();
            assert!(calls <= 1);
            assert_eq!(cell.finish_sleep(), calls == 1);
        });
    }
}
