//! Foreign kernel threads, which run no VP: their parker, and the state of a 1:1 kernel thread
//! ([`crate::api::one_to_one`]) that a microprocess keeps in its record.
//!
//! A 1:1 kernel thread can be cancelled, can mask cancellation, and inherits a deadline from its
//! scope. Deadline and mask exist on every kernel thread, because the thread sets them itself.

use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, RawFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use kumihimo_arch::descriptor::Descriptor;

use kumihimo_events::wakeup::add_to_eventfd;

use crate::microprocess::protocol::wake_flag::WakeFlag;
use crate::process::futex;

const EMPTY: u32 = 0;
const PERMIT: u32 = 1;
const PARKED: u32 = 2;

/// The parker of a foreign kernel thread.
#[derive(Debug)]
pub(crate) struct ForeignThread {
    word: AtomicU32,
    /// The user's park token, as in the record of a microprocess.
    pub(crate) token: AtomicU32,
    /// Set by the wakers of the future that the thread drives.
    pub(crate) wake_flag: WakeFlag,
    pub(crate) id: u64,
    pub(crate) one_to_one: OneToOne,
}

impl ForeignThread {
    fn new() -> ForeignThread {
        // The top bit is never set in a microprocess's ID.
        static NEXT: AtomicU64 = AtomicU64::new(1 << 63);
        ForeignThread {
            word: AtomicU32::new(EMPTY),
            token: AtomicU32::new(0),
            wake_flag: WakeFlag::new(),
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            one_to_one: OneToOne::new(),
        }
    }

    pub(crate) fn park(&self, deadline: Option<Instant>) {
        if self.word.compare_exchange(PERMIT, EMPTY, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return;
        }
        // As in `park_micro`.
        let bound = scope_deadline().filter(|b| deadline.is_none_or(|d| *b < d));
        if self.word.compare_exchange(EMPTY, PARKED, Ordering::Acquire, Ordering::Acquire).is_ok() {
            futex::wait(&self.word, PARKED, bound.or(deadline));
        }
        if bound.is_some_and(|b| Instant::now() >= b) {
            cancel_self();
        }
        // A permit, a timeout or a spurious return: the word is reset in each case.
        self.word.swap(EMPTY, Ordering::Acquire);
    }

    pub(crate) fn wake(&self) {
        if self.word.swap(PERMIT, Ordering::Release) == PARKED {
            futex::wake_one(&self.word);
        }
    }
}

/// Drops the thread's parker with the thread's other thread-local variables.
struct Release;

impl Drop for Release {
    fn drop(&mut self) {
        drop(FOREIGN.take().map(ManuallyDrop::into_inner));
    }
}

thread_local! {
    // Without a destructor, so that it can be used after `RELEASE` was dropped.
    static FOREIGN: Cell<Option<ManuallyDrop<Arc<ForeignThread>>>> = const { Cell::new(None) };
    static RELEASE: Release = const { Release };
}

/// Returns the parker of the calling kernel thread: the same one at each call, for a thread that
/// enrols with it and parks later. Static destructors and functions of atexit(3) run on a thread
/// whose thread-local variables are dropped already; it gets one that is leaked.
pub(crate) fn foreign() -> Arc<ForeignThread> {
    let parker = FOREIGN.take().unwrap_or_else(|| {
        let _ = RELEASE.try_with(|_| ());
        ManuallyDrop::new(Arc::new(ForeignThread::new()))
    });
    let shared = Arc::clone(&parker);
    FOREIGN.set(Some(parker));
    shared
}

const NEITHER: u8 = 0;
const RUNS: u8 = 1;
const ENDED: u8 = 2;

/// State of a 1:1 kernel thread that other threads access.
#[derive(Debug)]
pub(crate) struct OneToOne {
    life: AtomicU8,
    cancelled: AtomicBool,
    /// eventfd that ends the thread's waits in poll(2). Created at the first such wait.
    call: OnceLock<Option<Descriptor>>,
}

/// State that only the thread itself accesses. It has no destructor, because destructors of other
/// thread-locals use it.
struct Own {
    who: Cell<Option<NonNull<ForeignThread>>>,
    /// Deadline at which the scope of this thread cancels it.
    scope_deadline: Cell<Option<Instant>>,
    masked: Cell<u32>,
    deadline: Cell<Option<Instant>>,
}

thread_local! {
    static OWN: Own = const {
        Own { who: Cell::new(None), scope_deadline: Cell::new(None), masked: Cell::new(0), deadline: Cell::new(None) }
    };
}

impl OneToOne {
    pub(crate) fn new() -> OneToOne {
        OneToOne {
            life: AtomicU8::new(NEITHER),
            cancelled: AtomicBool::new(false),
            call: OnceLock::new(),
        }
    }

    /// Whether the thread has not ended. True also for a kernel thread that is not 1:1, of which
    /// the runtime does not learn the end.
    pub(crate) fn is_alive(&self) -> bool {
        self.life.load(Ordering::Acquire) != ENDED
    }

    /// Requests the cancellation. Returns false if the thread is not 1:1, or has ended. The caller
    /// wakes it afterwards.
    pub(crate) fn cancel(&self) -> bool {
        if self.life.load(Ordering::Acquire) != RUNS {
            return false;
        }
        self.cancelled.store(true, Ordering::Relaxed);
        // Pairs with the fence in `cancel_descriptor`: either this thread observes the eventfd, or
        // the cancelled thread observes the request.
        fence(Ordering::SeqCst);
        if let Some(Some(call)) = self.call.get() {
            // Never read, so it stays readable.
            add_to_eventfd(call.as_fd());
        }
        true
    }
}

/// Runs `f` as the work of the calling 1:1 kernel thread.
pub(crate) fn run_one_to_one<R>(
    who: &ForeignThread,
    scope_deadline: Option<Instant>,
    deadline: Option<Instant>,
    f: impl FnOnce() -> R,
) -> R {
    OWN.with(|own| {
        own.who.set(Some(NonNull::from(who)));
        own.scope_deadline.set(scope_deadline);
        own.deadline.set(deadline);
    });
    let value = f();
    // The thread-local destructors that run after this are not cancelled.
    OWN.with(|own| {
        own.who.set(None);
        own.scope_deadline.set(None);
    });
    who.one_to_one.life.store(ENDED, Ordering::Release);
    value
}

/// Marks the thread as running. Called before another thread can access the record.
pub(crate) fn begin_one_to_one(who: &ForeignThread) {
    who.one_to_one.life.store(RUNS, Ordering::Release);
}

/// Forgets the 1:1 state in the child of a fork, which is a plain kernel thread. Returns whether
/// the thread was 1:1.
pub(crate) fn forget() -> bool {
    OWN.with(|own| own.who.take()).is_some()
}

fn with_own<R>(f: impl FnOnce(&Own, &OneToOne) -> R) -> Option<R> {
    OWN.with(|own| {
        // SAFETY: set by `run_one_to_one` only, whose caller holds the record meanwhile.
        own.who.get().map(|who| f(own, unsafe { &who.as_ref().one_to_one }))
    })
}

/// Whether the calling kernel thread is 1:1.
pub(crate) fn is_one_to_one() -> bool {
    with_own(|_, _| ()).is_some()
}

pub(crate) fn is_cancelled() -> bool {
    with_own(|_, shared| shared.cancelled.load(Ordering::Relaxed)).unwrap_or(false)
}

/// Whether cancellation is requested and not masked.
pub(crate) fn due() -> bool {
    with_own(|own, shared| own.masked.get() == 0 && shared.cancelled.load(Ordering::Relaxed))
        .unwrap_or(false)
}

/// Cancels the calling thread, because its scope's deadline has passed.
pub(crate) fn cancel_self() {
    with_own(|_, shared| shared.cancelled.store(true, Ordering::Relaxed));
}

pub(crate) fn mask() {
    OWN.with(|own| own.masked.set(own.masked.get() + 1));
}

pub(crate) fn unmask() {
    OWN.with(|own| own.masked.set(own.masked.get() - 1));
}

/// Returns the deadline that the calling kernel thread inherits from its innermost scope.
pub(crate) fn deadline() -> Option<Instant> {
    OWN.with(|own| own.deadline.get())
}

pub(crate) fn set_deadline(deadline: Option<Instant>) {
    OWN.with(|own| own.deadline.set(deadline));
}

/// Returns the deadline at which the thread's scope cancels it; `None` if it is cancelled already.
pub(crate) fn scope_deadline() -> Option<Instant> {
    with_own(|own, shared| {
        own.scope_deadline.get().filter(|_| !shared.cancelled.load(Ordering::Relaxed))
    })?
}

/// Returns a descriptor that becomes readable when the calling kernel thread is cancelled. Returns
/// `None` if it cannot be cancelled, is cancelled already, or no descriptor is available.
pub(crate) fn cancel_descriptor() -> Option<RawFd> {
    with_own(|_, shared| {
        let call = shared.call.get_or_init(|| {
            // SAFETY: no pointers.
            let fd = unsafe {
                kumihimo_arch::kernel::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)
            };
            // SAFETY: a new descriptor without another owner.
            (fd >= 0).then(|| unsafe { Descriptor::from_raw_fd(fd) })
        });
        fence(Ordering::SeqCst);
        call.as_ref().filter(|_| !shared.cancelled.load(Ordering::Relaxed)).map(AsRawFd::as_raw_fd)
    })?
}
