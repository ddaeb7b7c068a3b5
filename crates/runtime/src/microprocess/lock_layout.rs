//! Where locks record their holders: offsets from the address in a [`Wait`], for reports.
//!
//! The locks are in crates above this one and in the C library. Each crate asserts at compile time
//! that its locks have the layout stated here.

use crate::microprocess::wait_reason::Wait;

/// Offset of the owner's mark ([`Waiter::mark`]) in a mutex of `kumihimo::sync`: 64 bits, whose top
/// bit is a flag.
///
/// [`Waiter::mark`]: crate::microprocess::waiter::Waiter::mark
pub const MUTEX_OWNER: usize = 48;
/// Flag in the word at [`MUTEX_OWNER`].
pub const MUTEX_WAITERS: u64 = 1 << 63;
/// Offset of the writer's mark in a readers-writer lock of `kumihimo::sync`: 64 bits.
pub const RWLOCK_WRITER: usize = 0;
/// Offset of the word with the number of readers: 32 bits.
pub const RWLOCK_WORD: usize = 8;
/// The bits of the word at [`RWLOCK_WORD`] that count readers.
pub const RWLOCK_READERS: u32 = (1 << 30) - 1;
/// Offset of the mark of the thread that runs the closure in a `kumihimo::sync::Once`: 64 bits.
pub const ONCE_RUNNER: usize = 0;
/// Offset of `__owner` in a `pthread_mutex_t`: the number of a thread, 32 bits
/// (sysdeps/x86/nptl/bits/struct_mutex.h of glibc).
pub const PTHREAD_MUTEX_OWNER: usize = 8;
/// Offset of `__cur_writer` in a `pthread_rwlock_t`: the number of a thread, 32 bits
/// (sysdeps/x86/nptl/bits/struct_rwlock.h of glibc).
pub const PTHREAD_RWLOCK_WRITER: usize = 24;
/// Offset of `__readers`: 32 bits, whose lowest bits are flags.
pub const PTHREAD_RWLOCK_READERS: usize = 0;
/// Position of the number of readers in the word at [`PTHREAD_RWLOCK_READERS`].
pub const PTHREAD_RWLOCK_SHIFT: u32 = 3;

/// Largest number of bytes from a lock's address to the end of its record of the holder.
const MOST: usize = MUTEX_OWNER + 8;

/// A lock's record of its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum HolderWord {
    /// No thread holds the lock.
    Free,
    /// The mark of a microprocess or of a foreign thread.
    Mark(u64),
    /// The number of a thread of the C library.
    ThreadNumber(u32),
    /// The number of readers. Which ones they are is not recorded.
    Readers(u32),
}

/// Whether the object of a wait is a lock: something that one thread, or some threads, hold.
pub(crate) fn is_lock(wait: Wait) -> bool {
    records_holder(wait) || matches!(wait, Wait::Semaphore(_) | Wait::Futex(_) | Wait::Spinlock(_))
}

/// Whether the lock records its holder.
pub(crate) fn records_holder(wait: Wait) -> bool {
    matches!(
        wait,
        Wait::Mutex(_)
            | Wait::RwLock(_)
            | Wait::Once(_)
            | Wait::PthreadMutex(_)
            | Wait::PthreadRwLock(_)
    )
}

/// Whether the lock is one of the C library, under `kumi run`.
pub(crate) fn is_of_c_library(wait: Wait) -> bool {
    matches!(wait, Wait::PthreadMutex(_) | Wait::PthreadRwLock(_))
}

/// Reads a lock's record of its holder. `copy` copies memory as
/// [`kumihimo_backtrace::copy`](kumihimo_backtrace::copy) does. Returns `None` if the lock has no
/// such record or its memory is gone.
pub(crate) fn read(wait: Wait, copy: impl Fn(usize, &mut [u8]) -> usize) -> Option<HolderWord> {
    let mut bytes = [0; MOST];
    let mut fetch =
        |at: usize, size: usize| (copy(at, &mut bytes[..size]) == size).then_some(Fetched(bytes));
    let one = |holder: u64, word: HolderWord| if holder == 0 { HolderWord::Free } else { word };
    let or_readers = |readers: u32| match readers {
        0 => HolderWord::Free,
        n => HolderWord::Readers(n),
    };
    Some(match wait {
        Wait::Mutex(at) => {
            let mark = fetch(at.checked_add(MUTEX_OWNER)?, 8)?.long(0) & !MUTEX_WAITERS;
            one(mark, HolderWord::Mark(mark))
        }
        Wait::Once(at) => {
            let mark = fetch(at.checked_add(ONCE_RUNNER)?, 8)?.long(0);
            one(mark, HolderWord::Mark(mark))
        }
        Wait::RwLock(at) => {
            let lock = fetch(at, RWLOCK_WORD + 4)?;
            match lock.long(RWLOCK_WRITER) {
                0 => or_readers(lock.word(RWLOCK_WORD) & RWLOCK_READERS),
                mark => HolderWord::Mark(mark),
            }
        }
        Wait::PthreadMutex(at) => {
            let owner = fetch(at.checked_add(PTHREAD_MUTEX_OWNER)?, 4)?.word(0);
            one(u64::from(owner), HolderWord::ThreadNumber(owner))
        }
        Wait::PthreadRwLock(at) => {
            let lock = fetch(at, PTHREAD_RWLOCK_WRITER + 4)?;
            match lock.word(PTHREAD_RWLOCK_WRITER) {
                0 => or_readers(lock.word(PTHREAD_RWLOCK_READERS) >> PTHREAD_RWLOCK_SHIFT),
                number => HolderWord::ThreadNumber(number),
            }
        }
        _ => return None,
    })
}

/// Copied bytes of a lock.
struct Fetched([u8; MOST]);

impl Fetched {
    fn long(&self, at: usize) -> u64 {
        u64::from_ne_bytes(self.0[at..at + 8].try_into().expect("eight bytes"))
    }

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }
}

#[cfg(test)]
mod tests;
