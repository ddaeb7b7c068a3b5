//! What the models have instead of the runtime and of the C library.

use std::ffi::c_int;

use loom::sync::atomic::{AtomicU32, Ordering};

/// Distance of two objects that have different buckets.
pub(crate) const STRIDE: usize = 128;

/// An object of the program: the words that the code under test reads as the C library's, and the
/// one word that has the object's state.
///
/// A lock's state is the number of its readers, or [`HELD`]; that of a semaphore is its units; that
/// of a futex is the word. The words are zero: objects of the default kind, which are not shared.
#[repr(C)]
pub(crate) struct Object {
    words: [u32; 16],
    state: AtomicU32,
}

pub(crate) const HELD: u32 = 1 << 31;

/// Two objects in different buckets.
#[repr(C, align(256))]
pub(crate) struct Pair {
    first: Object,
    gap: [u8; STRIDE - size_of::<Object>()],
    second: Object,
}

impl Pair {
    pub(crate) fn new(first: u32, second: u32) -> Box<Pair> {
        let object = |state| Object { words: [0; 16], state: AtomicU32::new(state) };
        Box::new(Pair {
            first: object(first),
            gap: [0; STRIDE - size_of::<Object>()],
            second: object(second),
        })
    }

    pub(crate) fn first(&self) -> Handle {
        Handle(std::ptr::from_ref(self).cast_mut().cast())
    }

    pub(crate) fn second(&self) -> Handle {
        // SAFETY: a field of the pair.
        Handle(unsafe { self.first().0.byte_add(STRIDE) })
    }

    /// Makes the first one a lock that prefers writers, or a barrier for so many threads.
    pub(crate) fn with_word(mut self: Box<Pair>, index: usize, value: u32) -> Box<Pair> {
        self.first.words[index] = value;
        self
    }
}

/// The address of an object, as a program passes it to functions of the C library.
#[derive(Clone, Copy)]
pub(crate) struct Handle(*mut Object);

// SAFETY: objects outlive the threads of a model.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    pub(crate) fn as_ptr<T>(self) -> *mut T {
        self.0.cast()
    }

    /// The address of a futex: that of its word.
    pub(crate) fn word(self) -> usize {
        std::ptr::from_ref(self.state()).expose_provenance()
    }

    pub(crate) fn state<'a>(self) -> &'a AtomicU32 {
        // SAFETY: objects outlive the threads of a model.
        unsafe { &(*self.0).state }
    }
}

/// The state of the object at `object`.
unsafe fn state<'a, T>(object: *mut T) -> &'a AtomicU32 {
    Handle(object.cast()).state()
}

/// Changes the state by a loop of compare and exchange, unless `to` returns nothing. Returns
/// whether it did.
fn change(state: &AtomicU32, to: impl Fn(u32) -> Option<u32>) -> bool {
    let done = exchange(state, to);
    primitives::after_lock_prefix();
    done
}

fn exchange(state: &AtomicU32, to: impl Fn(u32) -> Option<u32>) -> bool {
    let mut now = state.load(Ordering::Relaxed);
    loop {
        let Some(next) = to(now) else {
            // A failed compare and exchange is a read-modify-write on x86, which has the newest
            // value; a load of loom may have an older one.
            match state.compare_exchange(now, now, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return false,
                Err(newer) => now = newer,
            }
            continue;
        };
        match state.compare_exchange(now, next, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(newer) => now = newer,
        }
    }
}

fn or_busy(done: bool) -> c_int {
    if done { 0 } else { ::libc::EBUSY }
}

/// What `crate::loom` selects.
pub(crate) mod primitives {
    pub(crate) use super::{c as libc, park};
    pub(crate) use ::loom::cell::Cell;
    pub(crate) use ::loom::sync::{Mutex, MutexGuard, MutexGuard as Locked, atomic};

    /// The kernel thread's half of the clock: whether the caller's deadline has passed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub(crate) struct Instant(pub(crate) bool);

    impl Instant {
        pub(crate) fn now() -> Instant {
            Instant(super::park::has_expired())
        }
    }

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().expect("no model poisons a lock")
    }

    pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<(MutexGuard<'_, T>, ())> {
        mutex.try_lock().ok().map(|guard| (guard, ()))
    }

    /// x86 does not reorder an instruction with a LOCK prefix and a later load. loom takes SeqCst
    /// of an operation for AcqRel, so only a fence has that effect.
    pub(crate) fn after_lock_prefix() {
        atomic::fence(atomic::Ordering::SeqCst);
    }

    /// No order between kernel threads: a plain store before it may be delayed.
    pub(crate) fn compiler_fence(_order: atomic::Ordering) {}

    pub(crate) unsafe fn read(at: *const u32) -> u32 {
        // SAFETY: words of the models are loom's atomics.
        unsafe { (*at.cast::<atomic::AtomicU32>()).load(atomic::Ordering::Relaxed) }
    }
}

/// The runtime's park and wake. A thread of the model is a microprocess.
pub(crate) mod park {
    use loom::sync::{Arc, Condvar, Mutex};

    use super::primitives::Instant;

    #[derive(Clone, Copy, Debug)]
    pub(crate) enum Wait {
        PthreadMutex(usize),
        PthreadRwLock(usize),
        Spinlock(usize),
        Condvar(usize),
        Barrier(usize),
        Semaphore(usize),
        Futex(usize),
    }

    #[derive(Default)]
    struct State {
        has_permit: bool,
        has_expired: bool,
    }

    struct Parker {
        state: Mutex<State>,
        changed: Condvar,
    }

    #[derive(Clone)]
    pub(crate) struct Waiter(Arc<Parker>);

    loom::thread_local! {
        static ME: Waiter = Waiter(Arc::new(Parker {
            state: Mutex::new(State::default()),
            changed: Condvar::new(),
        }));
    }

    pub(crate) fn current() -> Waiter {
        ME.with(Clone::clone)
    }

    pub(crate) fn may_switch() -> bool {
        true
    }

    pub(crate) fn vps() -> Option<usize> {
        None
    }

    /// Waits for the permit, or until the deadline, which [`Waiter::expire`] lets pass.
    pub(crate) fn park(_why: Wait, deadline: Option<Instant>) {
        ME.with(|me| {
            let mut state = me.0.state.lock().unwrap();
            while !state.has_permit && !(deadline.is_some() && state.has_expired) {
                state = me.0.changed.wait(state).unwrap();
            }
            state.has_permit = false;
        });
    }

    pub(crate) fn has_expired() -> bool {
        ME.with(|me| me.0.state.lock().unwrap().has_expired)
    }

    impl Waiter {
        pub(crate) fn wake(&self) {
            self.0.state.lock().unwrap().has_permit = true;
            self.0.changed.notify_one();
        }

        /// Lets the thread's deadline pass.
        pub(crate) fn expire(&self) {
            self.0.state.lock().unwrap().has_expired = true;
            self.0.changed.notify_one();
        }
    }
}

/// The C library's functions that do not wait.
pub(crate) mod c {
    pub(crate) use ::libc::*;
    use std::ffi::{c_int, c_long};

    use loom::sync::atomic::Ordering;

    use super::primitives::after_lock_prefix;
    use super::{HELD, change, or_busy, state};

    pub(crate) unsafe fn pthread_mutex_trylock(mutex: *mut pthread_mutex_t) -> c_int {
        // SAFETY: an object of the model; so below.
        let free = |now| (now == 0).then_some(HELD);
        or_busy(change(unsafe { state(mutex) }, free))
    }

    pub(crate) unsafe fn pthread_mutex_unlock(mutex: *mut pthread_mutex_t) -> c_int {
        // SAFETY: the caller's promise.
        let before = unsafe { state(mutex) }.swap(0, Ordering::Release);
        after_lock_prefix();
        assert_eq!(before, HELD, "an unlock of a lock that is not held");
        0
    }

    pub(crate) unsafe fn pthread_rwlock_tryrdlock(lock: *mut pthread_rwlock_t) -> c_int {
        // SAFETY: the caller's promise.
        or_busy(change(unsafe { state(lock) }, |now| (now != HELD).then_some(now + 1)))
    }

    pub(crate) unsafe fn pthread_rwlock_trywrlock(lock: *mut pthread_rwlock_t) -> c_int {
        // SAFETY: the caller's promise.
        or_busy(change(unsafe { state(lock) }, |now| (now == 0).then_some(HELD)))
    }

    pub(crate) unsafe fn pthread_rwlock_unlock(lock: *mut pthread_rwlock_t) -> c_int {
        // SAFETY: the caller's promise.
        change(unsafe { state(lock) }, |now| Some(if now == HELD { 0 } else { now - 1 }));
        0
    }

    pub(crate) unsafe fn sem_trywait(semaphore: *mut sem_t) -> c_int {
        // SAFETY: the caller's promise.
        if change(unsafe { state(semaphore) }, |now| now.checked_sub(1)) { 0 } else { -1 }
    }

    pub(crate) unsafe fn sem_post(semaphore: *mut sem_t) -> c_int {
        // SAFETY: the caller's promise.
        unsafe { state(semaphore) }.fetch_add(1, Ordering::Release);
        after_lock_prefix();
        0
    }

    pub(crate) unsafe fn pthread_spin_trylock(lock: *mut pthread_spinlock_t) -> c_int {
        // SAFETY: the caller's promise.
        or_busy(change(unsafe { state(lock.cast::<u8>()) }, |now| (now == 0).then_some(HELD)))
    }

    pub(crate) unsafe fn pthread_spin_unlock(lock: *mut pthread_spinlock_t) -> c_int {
        // A plain store in the C library. loom does not order one with a concurrent
        // read-modify-write of the former value, so this is one itself, without the fence.
        // SAFETY: the caller's promise.
        unsafe { state(lock.cast::<u8>()) }.swap(0, Ordering::Release);
        0
    }

    /// The kernel has no waiters in the models.
    pub(crate) unsafe fn syscall(
        _number: c_long,
        _word: usize,
        _operation: c_int,
        _value: usize,
        _time: usize,
        _other: usize,
        _bits: u32,
    ) -> c_long {
        0
    }
}

/// `crate::time::deadline` of the models: one deadline for each thread.
pub(crate) mod deadline {
    use std::ffi::c_int;
    use std::time::Duration;

    use super::primitives::Instant;

    #[derive(Clone, Copy)]
    pub(crate) enum Deadline {
        Never,
        Once,
    }

    pub(crate) fn check(_time: &libc::timespec) -> Result<(), c_int> {
        Ok(())
    }

    impl Deadline {
        pub(crate) fn is_of(_clock: libc::clockid_t) -> bool {
            true
        }

        pub(crate) unsafe fn at(
            _clock: libc::clockid_t,
            _at: *const libc::timespec,
        ) -> Result<Deadline, c_int> {
            Ok(Deadline::Once)
        }

        pub(crate) fn after(_length: Duration) -> Deadline {
            Deadline::Once
        }

        pub(crate) fn is_some(self) -> bool {
            matches!(self, Deadline::Once)
        }

        pub(crate) fn instant(self) -> Option<Instant> {
            matches!(self, Deadline::Once).then_some(Instant(true))
        }

        pub(crate) fn has_passed(self) -> bool {
            matches!(self, Deadline::Once) && super::park::has_expired()
        }
    }
}

pub(crate) mod phase {
    pub(crate) fn has_started() -> bool {
        true
    }
}

pub(crate) mod record {
    pub(crate) struct Cancel(());

    impl Cancel {
        pub(crate) fn is_due(&self) -> bool {
            false
        }

        pub(crate) fn is_asynchronous(&self) -> bool {
            false
        }

        pub(crate) fn deferred<R>(&self, f: impl FnOnce() -> R) -> R {
            f()
        }
    }

    pub(crate) struct Signals {
        pub(crate) cancel: Cancel,
    }

    impl Signals {
        pub(crate) fn note_waiter(&self) {}
    }

    pub(crate) fn own_signals() -> Signals {
        Signals { cancel: Cancel(()) }
    }

    /// No object of the models has this owner.
    pub(crate) fn number() -> std::ffi::c_int {
        -1
    }
}

pub(crate) mod special {
    pub(crate) fn as_kernel_thread<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
}

/// No signal comes in the models, and no thread is cancelled.
pub(crate) mod signal {
    pub(crate) mod section {
        pub(crate) struct Section(());

        impl Section {
            pub(crate) fn enter() -> Section {
                Section(())
            }
        }

        pub(crate) struct Then(());

        impl Then {
            pub(crate) fn ends(self, _never_restarts: bool) -> bool {
                false
            }
        }

        pub(crate) fn is_interrupted(_is_point: bool) -> bool {
            false
        }

        pub(crate) fn handle_interruption() -> Then {
            Then(())
        }
    }
}

pub(crate) mod cancel {
    pub(crate) fn point() {}

    pub(crate) fn around<R>(f: impl FnOnce() -> R) -> R {
        f()
    }
}
