//! Threads that C programs have started, by their numbers.
//!
//! A number is never reused, so that a thread that was joined or detached is told from all others.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock, PoisonError};

use kumihimo::sync::{Mutex, MutexGuard};
use kumihimo::thread::{JoinHandle, Thread};

use crate::error::Failure;

/// Parts of the table, so that threads that start and end at once seldom meet.
const PARTS: usize = 64;

type Part = BTreeMap<u64, Arc<Record>>;
static THREADS: [Mutex<Part>; PARTS] = [const { Mutex::new(BTreeMap::new()) }; PARTS];
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    /// Number of this microprocess or kernel thread; 0 until it is asked for.
    static SELF: Cell<u64> = const { Cell::new(0) };
}

/// Thread that a C program has started.
pub(crate) struct Record {
    pub(crate) number: u64,
    pub(crate) thread: OnceLock<Thread>,
    state: Mutex<State>,
}

/// The result of a thread is the address that its function returned.
#[derive(Default)]
pub(crate) struct State {
    /// `None` while the thread starts, while another thread joins it, and once it is detached.
    pub(crate) handle: Option<JoinHandle<usize>>,
    pub(crate) is_detached: bool,
    has_ended: bool,
}

fn part(number: u64) -> MutexGuard<'static, Part> {
    locked(&THREADS[(number % PARTS as u64) as usize])
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code panics while it holds one of these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Record {
    /// Creates the record of a new thread and enters it into the table.
    pub(crate) fn enter() -> Arc<Record> {
        let number = NEXT.fetch_add(1, Relaxed);
        let record = Record { number, thread: OnceLock::new(), state: Mutex::default() };
        let record = Arc::new(record);
        part(number).insert(number, record.clone());
        record
    }

    /// Finds a thread that can be joined, or runs.
    pub(crate) fn find(number: u64) -> Result<Arc<Record>, Failure> {
        if let Some(record) = part(number).get(&number) {
            return Ok(record.clone());
        }
        if number == 0 || number >= NEXT.load(Relaxed) {
            return Err(Failure::new(libc::ESRCH, format!("there has been no thread {number}")));
        }
        Err(Failure::invalid(format!(
            "thread {number} was joined, or has ended detached, or is no thread of kumi_thread_create"
        )))
    }

    pub(crate) fn remove(&self) {
        let removed = part(self.number).remove(&self.number);
        // Dropped without the lock.
        drop(removed);
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Notes the end of the thread, which calls this.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.has_ended = true;
        let is_detached = state.is_detached;
        drop(state);
        if is_detached {
            self.remove();
        }
    }

    /// Detaches the thread. The caller drops the returned handle.
    pub(crate) fn detach(&self, mut state: MutexGuard<'_, State>) -> Option<JoinHandle<usize>> {
        state.is_detached = true;
        let (handle, has_ended) = (state.handle.take(), state.has_ended);
        drop(state);
        if has_ended {
            self.remove();
        }
        handle
    }
}

/// Returns the number of the caller, which is assigned at the first call if the caller was not
/// started by a C program.
pub(crate) fn current() -> u64 {
    SELF.with(|own| {
        if own.get() == 0 {
            own.set(NEXT.fetch_add(1, Relaxed));
        }
        own.get()
    })
}

/// Sets the number of the caller, which is a new thread.
pub(crate) fn begin(number: u64) {
    SELF.set(number);
}
