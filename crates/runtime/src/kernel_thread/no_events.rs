//! Sections in which no event reaches the caller: its virtual processor stays, whatever happens.
//!
//! A holder of a lock of the runtime has to be inside one. Else a page fault there could take the
//! VP away, and the returning microprocess would wait for its turn on a VP whose carrier waits for
//! that very lock.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::kernel_thread::gs_record::{KernelThread, Standing, standing};

/// As long as it exists, events for the calling microprocess wait (P0, 3.3.2: the event mask).
/// Nests. Costs two writes.
///
/// Nothing may switch meanwhile: no park, no wait. What blocks the kernel thread in the kernel
/// holds the whole virtual processor up. On a foreign kernel thread it does nothing.
#[derive(Debug)]
pub struct NoEvents {
    masked: bool,
    _not_send: PhantomData<*const ()>,
}

impl NoEvents {
    /// From here.
    #[inline]
    #[must_use]
    #[allow(clippy::new_without_default)]
    pub fn new() -> NoEvents {
        let masked = standing() != Standing::Foreign;
        if masked {
            // SAFETY: not foreign, so GS is set.
            unsafe { KernelThread::begin_guard() }.mask();
        }
        NoEvents { masked, _not_send: PhantomData }
    }
}

/// To here: what waited is told now.
impl Drop for NoEvents {
    #[inline]
    fn drop(&mut self) {
        if self.masked {
            // SAFETY: as in `new`; nothing switched, so it is the same kernel thread.
            unsafe { KernelThread::here() }.unmask();
        }
    }
}

/// A lock of the runtime, held. Released first, then events may come again.
#[derive(Debug)]
pub struct Locked<'a, T> {
    guard: MutexGuard<'a, T>,
    _quiet: NoEvents,
}

/// Takes a lock of the runtime, or of a crate above it that is held for as short. Blocks the kernel
/// thread meanwhile. The holder must not switch.
pub fn lock<T>(mutex: &Mutex<T>) -> Locked<'_, T> {
    let quiet = NoEvents::new();
    Locked { guard: mutex.lock().unwrap_or_else(PoisonError::into_inner), _quiet: quiet }
}

impl<T> Deref for Locked<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Locked<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}
