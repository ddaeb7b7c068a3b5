//! 1:1 mode: kernel threads instead of microprocesses. Used where the C library cannot create TLS
//! blocks (a static binary, another libc), or with `KUMI_LAB=tls=kernel`.
//!
//! Handles, scopes and types are the same. Every wait blocks its kernel thread, as for foreign
//! threads. For the limitations see the book, "Kernel threads 1:1".

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Result as Outcome;
use std::time::Instant;

use kumihimo_arch::{kernel_attributes, overflow};

use crate::api::handle::{Thread, current};
use crate::kernel_thread::gs_record::current_mp;
use crate::lifecycle::outcome::{drop_unwanted, note_panic};
use crate::lifecycle::scope_data::ScopeData;
use crate::memory::pool::SlotKind;
use crate::microprocess::foreign_thread;
use crate::microprocess::foreign_thread::ForeignThread;
use crate::microprocess::wait_reason::Wait;
use crate::microprocess::waiter::Waiter;
use crate::scheduler::instance;
use crate::wait::{cancel, park};

struct Completion<T> {
    state: Mutex<Progress<T>>,
    begun: Condvar,
}

struct Progress<T> {
    outcome: Option<Outcome<T>>,
    finished: bool,
    detached: bool,
    /// The thread itself, once it runs.
    thread: Option<Arc<ForeignThread>>,
    /// Waiters for the thread's end.
    waiters: Vec<Waiter>,
}

pub(crate) struct Handle<T> {
    cell: Arc<Completion<T>>,
    thread: Thread,
    kernel: Option<std::thread::JoinHandle<()>>,
}

impl<T> Completion<T> {
    fn lock(&self) -> MutexGuard<'_, Progress<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Starts a kernel thread that runs `f`.
///
/// # Safety
/// As for `std::thread::Builder::spawn_unchecked`. If a scope is given, it waits for `child_ends`.
pub(crate) unsafe fn spawn<T: Send>(
    name: Option<String>,
    stack_size: Option<usize>,
    scope: Option<&ScopeData>,
    f: Box<dyn FnOnce() -> T + Send + '_>,
) -> io::Result<Handle<T>> {
    struct Shared(Option<NonNull<ScopeData>>);
    // SAFETY: scope data consists of atomics and locks, and lives until `child_ends`.
    unsafe impl Send for Shared {}
    impl Shared {
        fn end(self, panicked: bool) {
            if let Some(scope) = self.0 {
                // SAFETY: the scope waits for this call, so it still exists.
                unsafe { scope.as_ref() }.child_ends(panicked);
            }
        }
    }
    let (instance, stack) = instance::visit(|instance| {
        let instance = instance
            .ok_or_else(|| io::Error::other("the runtime has ended: nothing can be spawned"))?;
        let stack = stack_size.unwrap_or(instance.settings.stack_size);
        // The same limit as in microprocess mode, so that a program's errors do not depend on the
        // machine.
        SlotKind::for_stack(stack, true)?;
        instance.admit()?;
        instance.spawned_outside.fetch_add(1, Ordering::Release);
        Ok::<_, io::Error>((instance.counted(), stack))
    })?;
    let label: Option<Arc<str>> = name.as_deref().map(Arc::from);
    let is_unnamed = name.is_none();
    let mut builder = std::thread::Builder::new().stack_size(stack);
    if let Some(name) = name {
        builder = builder.name(name);
    }
    let state = Progress {
        outcome: None,
        finished: false,
        detached: false,
        thread: None,
        waiters: Vec::new(),
    };
    let cell = Arc::new(Completion { state: Mutex::new(state), begun: Condvar::new() });
    let scope_deadline = scope.and_then(ScopeData::deadline);
    let deadline = cancel::earlier(cancel::deadline(), scope_deadline);
    let (child, scope) = (cell.clone(), Shared(scope.map(NonNull::from)));
    // A weak reference, because the thread may outlive its runtime.
    let (runtime, on_panic) = (Arc::downgrade(&instance), instance.settings.on_panic.clone());
    // A kernel thread of the runtime has another name and another timer slack than its
    // microprocess, and the new thread inherits both.
    let of_parent = current_mp().map(|mp| (mp.attributes().timer_slack, mp.os_name()));
    let overflow_name = label.clone();
    let body = move || {
        if let Some((slack, name)) = of_parent {
            kernel_attributes::set_timer_slack(slack);
            if is_unnamed {
                kernel_attributes::set_name(&name);
            }
        }
        // For a program whose `main` is not Rust's; without memory, its overflow has no report.
        let _watch = overflow::watch_this_kernel_thread(overflow_name.as_deref().unwrap_or(""));
        let me = foreign_thread::foreign();
        foreign_thread::begin_one_to_one(&me);
        child.lock().thread = Some(me.clone());
        child.begun.notify_all();
        let (outcome, panicked) =
            foreign_thread::run_one_to_one(&me, scope_deadline, deadline, || {
                let outcome = catch_unwind(AssertUnwindSafe(f));
                let panicked = outcome
                    .as_ref()
                    .is_err_and(|payload| note_panic(&|| on_panic.clone(), payload.as_ref()));
                (outcome, panicked)
            });
        // Before the first lock: in the child of a fork, the lock's holder may not exist.
        crate::kernel_thread::fork::end_of_child();
        let mut state = child.lock();
        state.finished = true;
        let unwanted = if state.detached { Some(outcome) } else { state.outcome.replace(outcome) };
        let waiters = std::mem::take(&mut state.waiters);
        drop(state);
        drop_unwanted(|| drop(unwanted));
        if let Some(runtime) = runtime.upgrade() {
            runtime.ended_outside.fetch_add(1, Ordering::Release);
        }
        scope.end(panicked);
        waiters.iter().for_each(Waiter::wake);
    };
    // SAFETY: the caller's promise.
    let kernel = unsafe { builder.spawn_unchecked(body) }.inspect_err(|_| {
        instance.ended_outside.fetch_add(1, Ordering::Release);
    })?;
    let mut state = cell.lock();
    while state.thread.is_none() {
        state = cell.begun.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let thread = state.thread.clone().expect("waited for");
    drop(state);
    instance.register_one_to_one(&thread);
    let thread = Thread::foreign(thread, label);
    Ok(Handle { cell, thread, kernel: Some(kernel) })
}

impl<T> Handle<T> {
    /// Takes the outcome, after `wait` has returned true.
    pub(crate) fn join(mut self) -> Outcome<T> {
        let kernel = self.kernel.take().expect("joined once");
        // The thread-local destructors have run when this returns.
        kernel.join()?;
        self.cell.lock().outcome.take().expect("a finished thread leaves its outcome")
    }

    /// Waits for the end. Returns false if the deadline passed or the caller was cancelled.
    pub(crate) fn wait(&self, deadline: Option<Instant>) -> bool {
        let me = park::current();
        assert!(
            self.thread.id() != current().id(),
            "failed to join thread: a microprocess cannot wait for its own end"
        );
        loop {
            let over = cancel::would_unwind() || deadline.is_some_and(|d| Instant::now() >= d);
            {
                let mut state = self.cell.lock();
                state.waiters.retain(|waiter| *waiter != me);
                if state.finished || over {
                    return state.finished;
                }
                state.waiters.push(me.clone());
            }
            park::park(Wait::Join(self.thread.id().as_u64().get()), deadline);
        }
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
