//! Disposal: closes descriptors that a peer has chosen, on kernel threads made for it.
//!
//! close(2) can block for as long as the file's author wants: a TCP socket with SO_LINGER and
//! unsent data, a file of a FUSE server that hangs. A thread that serves several peers must not
//! close such a descriptor, so it hands the descriptor over to a thread that serves no peer.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use kumihimo_arch::signal_mask;

/// Most threads. A peer that blocks one of them occupies it alone; what comes when all are blocked
/// stays open until one returns.
const MAX_THREADS: usize = 64;
/// Most disposals of one user under way, so that no user occupies all threads. No further
/// connection of a user with so many is served.
pub const MAX_OF_USER: usize = 16;
/// Time after which an idle thread ends.
const IDLE: Duration = Duration::from_secs(1);
/// A thread only closes; the kernel's part runs on the kernel's stack.
const STACK: usize = 64 << 10;

/// What is to be dropped, and the user that has passed it.
struct Disposal {
    of: u32,
    what: Box<dyn Send>,
}

#[derive(Default)]
struct DisposalState {
    queue: VecDeque<Disposal>,
    threads: usize,
    idle: usize,
    /// Disposals under way, queued ones included, by user.
    users: HashMap<u32, usize>,
}

/// The disposals of one process. The child of a fork has none of its parent's threads, and a lock
/// that it inherits may be held for ever, so it has a state of its own.
struct ProcessState {
    pid: u32,
    state: Mutex<DisposalState>,
    queued: Condvar,
    /// That of a child.
    next: OnceLock<Box<ProcessState>>,
}

static FIRST: OnceLock<Box<ProcessState>> = OnceLock::new();

impl ProcessState {
    /// That of this process, if it has disposed of something.
    fn get() -> Option<&'static ProcessState> {
        let pid = std::process::id();
        let mut at = FIRST.get();
        while let Some(state) = at.filter(|state| state.pid != pid) {
            at = state.next.get();
        }
        at.map(|state| &**state)
    }

    fn get_or_init() -> &'static ProcessState {
        let pid = std::process::id();
        let new = || {
            let (state, queued) = (Mutex::default(), Condvar::new());
            Box::new(ProcessState { pid, state, queued, next: OnceLock::new() })
        };
        let mut at = FIRST.get_or_init(new);
        while at.pid != pid {
            at = at.next.get_or_init(new);
        }
        at
    }

    fn lock(&self) -> MutexGuard<'_, DisposalState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Drops `what`, which user `uid` has passed, on another thread. Never blocks. Where no thread can
/// be started, `what` stays open until the next call that can start one.
pub fn dispose(uid: u32, what: impl Send + 'static) {
    let process = ProcessState::get_or_init();
    let mut state = process.lock();
    *state.users.entry(uid).or_default() += 1;
    state.queue.push_back(Disposal { of: uid, what: Box::new(what) });
    if state.queue.len() > state.idle && state.threads < MAX_THREADS {
        let builder = thread::Builder::new().name("kumi-close".into()).stack_size(STACK);
        let begun = signal_mask::spawn_blocked(builder, || run(process));
        state.threads += usize::from(begun.is_ok());
    }
    drop(state);
    process.queued.notify_one();
}

/// Returns whether user `uid` has [`MAX_OF_USER`] disposals under way.
#[must_use]
pub fn is_full(uid: u32) -> bool {
    pending(uid) >= MAX_OF_USER
}

/// Returns how many disposals of user `uid` are under way.
#[must_use]
pub fn pending(uid: u32) -> usize {
    ProcessState::get().map_or(0, |process| process.lock().users.get(&uid).copied().unwrap_or(0))
}

fn run(process: &ProcessState) {
    let mut state = process.lock();
    loop {
        while let Some(Disposal { of, what }) = state.queue.pop_front() {
            drop(state);
            drop(what);
            state = process.lock();
            if let Some(count) = state.users.get_mut(&of) {
                *count -= 1;
                if *count == 0 {
                    state.users.remove(&of);
                }
            }
        }
        state.idle += 1;
        let (woken, waited) =
            process.queued.wait_timeout(state, IDLE).unwrap_or_else(PoisonError::into_inner);
        state = woken;
        state.idle -= 1;
        if waited.timed_out() && state.queue.is_empty() {
            state.threads -= 1;
            return;
        }
    }
}

#[cfg(test)]
mod tests;
