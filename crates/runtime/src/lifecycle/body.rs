//! How a microprocess runs its closure: plainly, or with a name that std knows.
//!
//! std's panic message and `std::thread::current().name()` show the name of the handle that std
//! keeps in thread-local storage. std stores a handle with a name only where
//! `std::thread::Builder::spawn` begins a thread. So the creator of a named microprocess has std
//! prepare a thread, whose creation is captured ([`thread_start`]), and the microprocess runs that
//! thread's start routine around its closure. An unnamed microprocess has no name in std either,
//! and nothing to do.

use std::cell::{Cell, UnsafeCell};
use std::os::unix::thread::JoinHandleExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use kumihimo_arch::thread_start::{self, ThreadStart};
use kumihimo_arch::tls;

use crate::kernel_thread::fork;
use crate::kernel_thread::gs_record::{KernelThread, Standing, set_standing};
use crate::kernel_thread::no_events::NoEvents;
use crate::lifecycle::outcome::{Place, conclude};
use crate::microprocess::record::Mp;
use crate::scheduler::carrier::Carrier;
use crate::upcall::bind;
use crate::wait::tracing_spans;

/// Makes the block of a new microprocess usable.
#[inline(always)]
pub(crate) fn begin(mp: &Mp) {
    if mp.fs.get() != 0 {
        set_standing(Standing::OnVp);
        // SAFETY: nothing has run on the block yet.
        unsafe { tls::get().first_run() };
    }
}

/// Completes the switch to a new microprocess and unmasks its kernel thread. From here on user code
/// may run on the microprocess: a policy for the previous one, or for this one at a preemption.
///
/// # Safety
/// The caller is a microprocess that has not called this yet.
#[inline(always)]
unsafe fn enter() {
    // SAFETY: a microprocess begins on a VP, so GS is set; the switch left the slot masked.
    let carrier = unsafe { Carrier::here() }.arrive();
    carrier.vp().note_may_run_long();
    drop(carrier);
}

/// Runs the destructors of thread-locals and pthread keys, as at the end of a kernel thread. A lean
/// microprocess has none of its own.
///
/// # Safety
/// The caller is `mp`, and runs no user code afterwards.
pub(crate) unsafe fn finish_block(mp: &Mp) {
    if mp.fs.get() != 0 {
        mp.cancel_masked.set(1);
        // SAFETY: called on the microprocess's own block.
        unsafe { tls::get().exit_current() };
    }
    fork::end_of_child();
}

/// Runs the closure of `mp`, on a kernel thread of its own if it was spawned so.
#[inline(always)]
fn live<T>(mp: &'static Mp, closure: impl FnOnce() -> T) -> T {
    bind::bind_first(mp);
    tracing_spans::life(mp, closure)
}

/// What a microprocess runs.
pub(crate) trait Run<T> {
    /// Calls [`enter`], runs the closure, and stores its outcome.
    ///
    /// # Safety
    /// The caller is `mp`, at its begin, and `place` that of its outcome.
    unsafe fn run(self, mp: &'static Mp, place: Place<T>);
}

/// A closure of a microprocess without a name.
pub(crate) struct Unnamed<F>(pub(crate) F);

impl<F: FnOnce() -> T, T> Run<T> for Unnamed<F> {
    #[inline(always)]
    unsafe fn run(self, mp: &'static Mp, place: Place<T>) {
        // SAFETY: the caller's promise.
        unsafe {
            enter();
            conclude(mp, place, catch_unwind(AssertUnwindSafe(|| live(mp, self.0))));
        }
    }
}

/// A closure in a box, for which no code is compiled but that of its result's type.
pub(crate) type Boxed<'a, T> = Box<dyn FnOnce() -> T + 'a>;

/// A closure of a microprocess with a name.
pub(crate) struct Named<'a, T> {
    /// The start routine of the thread that std prepared. None if std did not ask for a thread in
    /// the expected way.
    start: Option<ThreadStart>,
    shared: Arc<Shared<'a, T>>,
}

/// Shared with the closure that std runs.
struct Shared<'a, T> {
    /// Whether the microprocess runs std's thread. Otherwise a kernel thread runs it, which leaves
    /// the other fields alone.
    is_begun: AtomicBool,
    closure: UnsafeCell<Option<Boxed<'a, T>>>,
    life: Cell<Option<Life<T>>>,
    /// From the end of the closure to the end of std's start routine.
    quiet: Cell<Option<NoEvents>>,
}

struct Life<T> {
    mp: &'static Mp,
    place: Place<T>,
}

// SAFETY: `is_begun` decides which thread uses the other fields: the creator before, and the
// microprocess afterwards. The creator passes closures between threads only if it may.
unsafe impl<T> Sync for Shared<'_, T> {}
// SAFETY: as above.
unsafe impl<T> Send for Shared<'_, T> {}

impl<'a, T> Named<'a, T> {
    /// Has std prepare a thread with this name for `f`. The name holds no NUL byte.
    pub(crate) fn new(name: &str, f: Boxed<'a, T>) -> Named<'a, T> {
        let shared = Arc::new(Shared {
            is_begun: AtomicBool::new(false),
            closure: UnsafeCell::new(Some(f)),
            life: Cell::new(None),
            quiet: Cell::new(None),
        });
        let start = prepare(name, shared.clone());
        Named { start, shared }
    }
}

/// Once std has created a kernel thread although its creation should have been captured, it does so
/// always.
static CREATES_THREADS: AtomicBool = AtomicBool::new(false);

fn prepare<T>(name: &str, shared: Arc<Shared<'_, T>>) -> Option<ThreadStart> {
    // Relaxed: a hint only.
    if CREATES_THREADS.load(Ordering::Relaxed) {
        return None;
    }
    // With room for the NUL byte that std appends.
    let mut owned = String::with_capacity(name.len() + 1);
    owned.push_str(name);
    let builder = std::thread::Builder::new().name(owned).stack_size(64 << 10);
    let (handle, start) = thread_start::capture(|| {
        // SAFETY: the closure borrows what `f` borrows. A microprocess that runs it ends before
        // that, and a kernel thread that runs it does not touch `f`.
        unsafe { builder.spawn_unchecked(move || shared.run_by_std()) }
    });
    match (handle, &start) {
        // Forgets the thread's ID, which is none.
        (Ok(handle), Some(_)) => _ = handle.into_pthread_t(),
        (Ok(_), None) => CREATES_THREADS.store(true, Ordering::Relaxed),
        (Err(_), _) => {}
    }
    start
}

impl<T> Run<T> for Named<'_, T> {
    unsafe fn run(mut self, mp: &'static Mp, place: Place<T>) {
        let life = Life { mp, place };
        let Some(start) = self.start.take() else {
            // SAFETY: no other thread uses the fields, and the caller is the microprocess.
            unsafe { self.shared.live(life) };
            return;
        };
        self.shared.life.set(Some(life));
        // Relaxed: read by this microprocess, on which std runs the closure.
        self.shared.is_begun.store(true, Ordering::Relaxed);
        // std aborts if code has used its handle of the current thread on this block before. The
        // kernel thread is masked until `enter`, so no user code does so.
        // SAFETY: the block is fresh, and a microprocess begins on a VP, so GS is set.
        unsafe {
            KernelThread::here().is_starting.set(true);
            start.run();
        }
        drop(self.shared.quiet.take());
    }
}

impl<T> Shared<'_, T> {
    /// The closure that std runs on the thread that it prepared.
    fn run_by_std(&self) {
        if !self.is_begun.load(Ordering::Relaxed) {
            return;
        }
        let Some(life) = self.life.take() else { return };
        let mp = life.mp;
        // SAFETY: still masked, on the kernel thread where `run` set it.
        unsafe { KernelThread::here() }.is_starting.set(false);
        // SAFETY: the microprocess has begun, and it runs this.
        unsafe { self.live(life) };
        // In a forked child, std's further steps could wait for a lock that a thread held which
        // does not exist in the child.
        if fork::is_child() {
            // SAFETY: the microprocess runs no user code afterwards.
            unsafe { finish_block(mp) };
        }
        // std looks the thread up in a list under a lock of its own, with which it must not be
        // preempted: others would block their kernel threads for it.
        self.quiet.set(Some(NoEvents::new()));
    }

    /// Lives the microprocess's life.
    ///
    /// # Safety
    /// The caller is that microprocess, which calls this once, and no other thread uses the fields.
    unsafe fn live(&self, Life { mp, place }: Life<T>) {
        // SAFETY: the caller's promise.
        unsafe {
            enter();
            let f = (*self.closure.get()).take().expect("called once");
            conclude(mp, place, catch_unwind(AssertUnwindSafe(|| live(mp, f))));
        }
    }
}

impl<T> Drop for Named<'_, T> {
    /// Has std free the thread that it prepared, if no microprocess runs it. Only the thread itself
    /// can do so. Without memory for a kernel thread it stays.
    fn drop(&mut self) {
        if let Some(start) = self.start.take() {
            // SAFETY: not begun, so the creator owns the closure.
            drop(unsafe { (*self.shared.closure.get()).take() });
            start.run_on_kernel_thread();
        }
    }
}
