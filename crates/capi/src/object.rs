//! Objects in the memory of the C program: locks, condition variables, semaphores and barriers.
//!
//! A C program allocates such an object as a structure of [`WORDS`] words. Zeroes are a valid
//! object of the kinds that have a static initialiser. The state word detects most misuse: memory
//! that was never initialised, a destroyed object, an object of another kind.

use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use kumihimo::thread;

use crate::error::Failure;
use crate::gate::bytes::non_null;

/// Size of every object in C, in words of 64 bits.
pub const WORDS: usize = 16;

/// Content of an object. Private to the crate, although types outside of it name `Object`.
#[doc(hidden)]
pub trait Content: Sized {
    /// State word of a live object of this kind.
    const TAG: u64;
    /// Name of an argument of this kind, for error messages.
    const NAME: &'static str;

    /// Creates the content of an object that consists of zeroes; `None` if the kind has no static
    /// initialiser.
    fn initial() -> Option<Self>;

    /// Whether no thread holds the object or is blocked in it.
    fn is_unused(&self) -> bool;
}

/// Object in the memory of the C program.
#[repr(C)]
pub struct Object<T> {
    state: AtomicU64,
    users: Users,
    content: UnsafeCell<MaybeUninit<T>>,
}

/// State of a destroyed object. No kind has this tag.
const DEAD: u64 = u64::MAX;
/// Set beside the tag while the object is being initialised.
const BUSY: u64 = 1 << 63;

// SAFETY: the content is accessed only by shared reference once the state says that it exists.
unsafe impl<T: Sync> Sync for Object<T> {}

impl<T: Content> Object<T> {
    /// Checks the pointer and the state, and returns the content.
    ///
    /// # Safety
    /// `object` is NULL, or points to an object of any kind for `'a`.
    #[inline]
    pub(crate) unsafe fn content<'a>(object: *mut Object<T>) -> Result<&'a T, Failure> {
        // SAFETY: the caller's contract.
        unsafe { Object::live(object) }.map(Object::get)
    }

    /// As [`content`](Object::content), and registers the caller as a user until the returned
    /// value is dropped.
    ///
    /// # Safety
    /// As for `content`.
    #[inline]
    pub(crate) unsafe fn used<'a>(object: *mut Object<T>) -> Result<(&'a T, User<'a>), Failure> {
        // SAFETY: the caller's contract.
        let object = unsafe { non_null(object, T::NAME) }?;
        // Before the look at the state: either this thread sees that the object is destroyed, or
        // `destroy` sees this thread.
        let user = object.users.enter();
        object.check_live()?;
        Ok((object.get(), user))
    }

    /// # Safety
    /// As for `content`.
    #[inline]
    unsafe fn live<'a>(object: *mut Object<T>) -> Result<&'a Object<T>, Failure> {
        // SAFETY: the caller's contract.
        let object = unsafe { non_null(object, T::NAME) }?;
        object.check_live()?;
        Ok(object)
    }

    #[inline]
    fn check_live(&self) -> Result<(), Failure> {
        if self.state.load(SeqCst) == T::TAG { Ok(()) } else { self.initialise() }
    }

    fn get(&self) -> &T {
        // SAFETY: `live` has seen the tag, which follows the initialisation.
        unsafe { (*self.content.get()).assume_init_ref() }
    }

    #[cold]
    fn initialise(&self) -> Result<(), Failure> {
        let busy = T::TAG | BUSY;
        loop {
            match self.state.compare_exchange(0, busy, Acquire, Acquire) {
                Ok(_) => {
                    let Some(content) = T::initial() else {
                        self.state.store(0, Release);
                        return Err(not_live(T::NAME));
                    };
                    // SAFETY: no other thread accesses the content while the state is `busy`.
                    unsafe { (*self.content.get()).write(content) };
                    self.state.store(T::TAG, Release);
                    return Ok(());
                }
                Err(state) if state == T::TAG => return Ok(()),
                // Another thread initialises the object, which takes some nanoseconds.
                Err(state) if state == busy => std::thread::yield_now(),
                Err(_) => return Err(not_live(T::NAME)),
            }
        }
    }

    /// Initialises an object, whatever its memory contains.
    ///
    /// # Safety
    /// `object` is NULL, or points to memory of an object that no other thread uses.
    pub(crate) unsafe fn init(object: *mut Object<T>, content: T) -> Result<(), Failure> {
        const { assert!(size_of::<Object<T>>() <= WORDS * 8 && align_of::<Object<T>>() <= 8) };
        // SAFETY: the caller's contract. Atomics and `MaybeUninit` permit any content.
        let object = unsafe { non_null(object, T::NAME) }?;
        object.users.0.store(0, Relaxed);
        // SAFETY: no other thread uses the object.
        unsafe { (*object.content.get()).write(content) };
        object.state.store(T::TAG, Release);
        Ok(())
    }

    /// Destroys an object. EBUSY, without effect, if it is in use.
    ///
    /// # Safety
    /// As for `content`; no thread calls a function on the object afterwards.
    pub(crate) unsafe fn destroy(object: *mut Object<T>) -> Result<(), Failure> {
        // SAFETY: the caller's contract.
        let object = unsafe { Object::live(object) }?;
        if !object.get().is_unused() {
            return Err(in_use(T::NAME));
        }
        if object.state.compare_exchange(T::TAG, DEAD, SeqCst, Relaxed).is_err() {
            return Err(not_live(T::NAME));
        }
        if !object.users.wait_while(|| object.get().is_unused()) {
            // A thread has begun to wait meanwhile.
            object.state.store(T::TAG, Release);
            return Err(in_use(T::NAME));
        }
        // SAFETY: the object was live, and no function uses it any more.
        unsafe { (*object.content.get()).assume_init_drop() };
        Ok(())
    }
}

#[cold]
fn in_use(name: &str) -> Failure {
    Failure::new(libc::EBUSY, format!("{name} is in use: a thread holds it or waits for it"))
}

#[cold]
fn not_live(name: &str) -> Failure {
    Failure::invalid(format!("{name} is not initialised, or destroyed, or of another type"))
}

/// Number of threads inside functions of an object.
///
/// A function that has made another thread return, such as a signal, may still access the object
/// when that thread destroys it.
#[derive(Default)]
pub(crate) struct Users(AtomicU32);

impl Users {
    #[inline]
    pub(crate) fn enter(&self) -> User<'_> {
        self.0.fetch_add(1, SeqCst);
        User(&self.0)
    }

    /// Waits for threads that are about to return, while `may_wait` holds. Returns whether all have
    /// returned.
    pub(crate) fn wait_while(&self, may_wait: impl Fn() -> bool) -> bool {
        let mut turns = 0;
        while self.0.load(SeqCst) != 0 {
            if !may_wait() {
                return false;
            }
            turns += 1;
            thread::without_cancellation(|| match turns {
                ..100 => thread::yield_now(),
                // They may have a lower priority, which a yield does not let run.
                _ => thread::sleep(Duration::from_micros(50)),
            });
        }
        true
    }
}

/// A thread inside a function of an object.
pub(crate) struct User<'a>(&'a AtomicU32);

impl Drop for User<'_> {
    fn drop(&mut self) {
        // The last access to the object.
        self.0.fetch_sub(1, Release);
    }
}
