//! Kernel threads instead of microprocesses, where the machine's C library gives no TLS blocks (a static binary, another libc) or
//! `KUMI_TLS=kernel` asks for it.
//!
//! The same handles, scopes and types; every wait blocks its kernel thread, as foreign threads always do. What is lost: cheapness,
//! priorities, cancellation, lean ones.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Result as Outcome;
use std::time::Instant;

use crate::cancel;
use crate::park;
use crate::runtime::DEFAULT_STACK;
use crate::scope::Data as ScopeData;
use crate::thread::{Inner, JoinHandle, Thread};

struct Cell<T> {
    state: Mutex<State<T>>,
    ended: Condvar,
}

struct State<T> {
    outcome: Option<Outcome<T>>,
    finished: bool,
    detached: bool,
    /// Itself, once it runs.
    thread: Option<Arc<park::Foreign>>,
}

pub(crate) struct Handle<T> {
    cell: Arc<Cell<T>>,
    thread: Thread,
    kernel: Option<std::thread::JoinHandle<()>>,
}

impl<T> Cell<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Begins a kernel thread that runs `f`.
///
/// # Safety
/// As `std::thread::Builder::spawn_unchecked`; a given scope waits for `child_ends`.
pub(crate) unsafe fn spawn<F, T>(
    name: Option<String>,
    stack_size: Option<usize>,
    scope: Option<&ScopeData>,
    f: F,
) -> io::Result<JoinHandle<T>>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    struct Shared(Option<NonNull<ScopeData>>);
    // SAFETY: scope data are atomics and locks, and live until `child_ends`.
    unsafe impl Send for Shared {}
    impl Shared {
        fn end(self, panicked: bool) {
            if let Some(scope) = self.0 {
                // SAFETY: the scope waits for this call.
                unsafe { scope.as_ref() }.child_ends(panicked);
            }
        }
    }
    let stack = stack_size.unwrap_or(DEFAULT_STACK);
    // The same bound as in the other modes, so that a program's errors do not depend on the machine.
    crate::runtime::kind(stack, true)?;
    let label: Option<Arc<str>> = name.as_deref().map(Arc::from);
    let mut builder = std::thread::Builder::new().stack_size(stack);
    if let Some(name) = name {
        builder = builder.name(name);
    }
    let state = State { outcome: None, finished: false, detached: false, thread: None };
    let cell = Arc::new(Cell { state: Mutex::new(state), ended: Condvar::new() });
    let (child, scope) = (cell.clone(), Shared(scope.map(NonNull::from)));
    let body = move || {
        {
            let mut state = child.lock();
            state.thread = Some(park::foreign());
            child.ended.notify_all();
        }
        let outcome = catch_unwind(AssertUnwindSafe(f));
        let panicked = outcome.as_ref().is_err_and(|payload| !payload.is::<cancel::Cancelled>());
        let mut state = child.lock();
        state.finished = true;
        let unwanted = if state.detached { Some(outcome) } else { state.outcome.replace(outcome) };
        child.ended.notify_all();
        drop(state);
        drop(unwanted);
        scope.end(panicked);
    };
    // SAFETY: the caller's promise.
    let kernel = unsafe { builder.spawn_unchecked(body) }?;
    let mut state = cell.lock();
    while state.thread.is_none() {
        state = cell.ended.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let thread = Thread::foreign(state.thread.clone().expect("waited for"), label);
    drop(state);
    Ok(JoinHandle { inner: Inner::Kernel(Handle { cell, thread, kernel: Some(kernel) }) })
}

impl<T> Handle<T> {
    pub(crate) fn join(mut self) -> Outcome<T> {
        let kernel = self.kernel.take().expect("joined once");
        // Its thread-local destructors have run when this returns. A self-join panics there, as in std.
        kernel.join()?;
        self.cell.lock().outcome.take().expect("a finished thread leaves its outcome")
    }

    /// True: it has finished.
    pub(crate) fn wait(&self, deadline: Instant) -> bool {
        let mut state = self.cell.lock();
        while !state.finished {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.cell.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.cell.lock().finished
    }

    pub(crate) fn thread(&self) -> &Thread {
        &self.thread
    }
}

impl<T> Drop for Handle<T> {
    fn drop(&mut self) {
        let unwanted = {
            let mut state = self.cell.lock();
            state.detached = true;
            state.outcome.take()
        };
        drop(unwanted);
    }
}
