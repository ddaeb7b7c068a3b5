//! Waiting and waking: the one place where a microprocess, or a foreign kernel thread, stops and starts again.
//!
//! Everything in `sync` and `io` is built on [`park`] and [`Waiter::wake`]. The permit here is the runtime's own: it may be
//! left over or consumed spuriously, so callers always loop on a condition of their own. The user's `thread::park` token is a
//! separate word (`thread.rs`), as in std, where a mutex never eats a token that `unpark` left.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// What a parked one waits for. Shown in the deadlock report.
///
/// The `usize` is the address of the object, `u64` the id of a microprocess, `i32` a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum Wait {
    Park,
    Sleep,
    Join(u64),
    Mutex(usize),
    RwLock(usize),
    Condvar(usize),
    Barrier(usize),
    Once(usize),
    Semaphore(usize),
    Channel(usize),
    Select,
    Message(usize),
    Io(i32),
    Scope,
    Blocking,
}

const EMPTY: u32 = 0;
const PERMIT: u32 = 1;
const PARKED: u32 = 2;

/// The parker of a kernel thread that runs no virtual processor.
#[derive(Debug)]
pub(crate) struct Foreign {
    word: AtomicU32,
    id: u64,
}

impl Foreign {
    fn new() -> Foreign {
        // Even ids never collide with microprocess ids, which are odd.
        static NEXT: AtomicU64 = AtomicU64::new(2);
        Foreign { word: AtomicU32::new(EMPTY), id: NEXT.fetch_add(2, Ordering::Relaxed) }
    }

    fn park(&self, deadline: Option<Instant>) {
        if self.word.compare_exchange(PERMIT, EMPTY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        if self.word.compare_exchange(EMPTY, PARKED, Ordering::Acquire, Ordering::Acquire).is_ok() {
            crate::futex::wait(&self.word, PARKED, deadline);
        }
        // Permit or timeout or spurious: whatever is there is consumed.
        self.word.swap(EMPTY, Ordering::Acquire);
    }

    fn wake(&self) {
        if self.word.swap(PERMIT, Ordering::Release) == PARKED {
            crate::futex::wake_one(&self.word);
        }
    }
}

thread_local! {
    static FOREIGN: Cell<Option<Arc<Foreign>>> = const { Cell::new(None) };
}

fn foreign() -> Arc<Foreign> {
    FOREIGN
        .try_with(|slot| {
            let parker = slot.take().unwrap_or_else(|| Arc::new(Foreign::new()));
            slot.set(Some(parker.clone()));
            parker
        })
        // During the thread's TLS destruction a fresh one serves: nobody else can hold the old one's permit.
        .unwrap_or_else(|_| Arc::new(Foreign::new()))
}

#[derive(Clone, Debug)]
enum Who {
    Foreign(Arc<Foreign>),
}

/// One who waits: a microprocess or a foreign kernel thread.
#[derive(Clone, Debug)]
pub struct Waiter(Who);

impl PartialEq for Waiter {
    fn eq(&self, other: &Waiter) -> bool {
        self.id() == other.id()
    }
}

impl Eq for Waiter {}

/// The caller as somebody who can be woken.
pub fn current() -> Waiter {
    Waiter(Who::Foreign(foreign()))
}

/// Whether the caller runs on a virtual processor.
pub fn on_vp() -> bool {
    false
}

/// Blocks the caller until it is woken, the deadline passes, or spuriously.
///
/// Blocks the microprocess; on a foreign kernel thread, the kernel thread. Not a cancellation point, but a cancel request
/// ends the wait. `why` is for reports only.
pub fn park(why: Wait, deadline: Option<Instant>) {
    let _ = why;
    foreign().park(deadline);
}

impl Waiter {
    /// Ends the wait, or leaves one permit that ends the next. Everything before happens before the return of `park`.
    pub fn wake(&self) {
        match &self.0 {
            Who::Foreign(f) => f.wake(),
        }
    }

    /// As [`wake`](Waiter::wake), with the hint that the caller is about to block: the woken one runs next, here.
    pub fn wake_sync(&self) {
        self.wake();
    }

    /// Unique among the living; never 0.
    pub fn id(&self) -> u64 {
        match &self.0 {
            Who::Foreign(f) => f.id,
        }
    }

    /// Effective priority, 0..=63. Foreign threads count as 32.
    pub fn priority(&self) -> u8 {
        32
    }

    /// Priority inheritance: the effective priority becomes the larger of its own and `p`. Nothing on foreign threads.
    pub fn set_inherited(&self, p: Option<u8>) {
        let _ = p;
    }

    /// False for a foreign kernel thread.
    pub fn is_microprocess(&self) -> bool {
        false
    }
}
