//! Shim that selects the real primitives or loom's. Modules with loom models take atomics, cells
//! and the sleep of a kernel thread from here.

#[cfg(loom)]
pub(crate) use ::loom::sync::{Mutex, atomic};

#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, atomic};

/// Wakes a VP that sleeps in its epoll set.
#[cfg(loom)]
pub(crate) use crate::model::poller::EpollWaker;
#[cfg(not(loom))]
pub(crate) use kumihimo_events::wakeup::EpollWaker;

#[cfg(loom)]
pub(crate) use crate::model::poller::Unparker;
/// Gives a parked VP a kernel thread. No VP of the models is parked: `kumihimo_events::park_word`
/// has those models.
#[cfg(not(loom))]
pub(crate) use kumihimo_events::Unparker;

use atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Instant;

/// Sleeps while `*word == expected`, at most until `deadline`. May return spuriously.
pub(crate) fn futex_wait(word: &AtomicU32, expected: u32, deadline: Option<Instant>) {
    #[cfg(not(loom))]
    crate::process::futex::wait(word, expected, deadline);
    #[cfg(loom)]
    {
        let _ = (word, expected, deadline);
        ::loom::thread::yield_now();
    }
}

/// Wakes one sleeper of [`futex_wait`].
pub(crate) fn futex_wake_one(word: &AtomicU32) {
    #[cfg(not(loom))]
    crate::process::futex::wake_one(word);
    #[cfg(loom)]
    let _ = word;
}

/// A release store that concurrent read-modify-writes of the former value precede.
///
/// Coherence puts a read-modify-write of the former value before this store, and the next load here
/// reads this store or a later one. loom does not model that order between a store and a concurrent
/// read-modify-write, so the model uses an exchange.
#[inline(always)]
pub(crate) fn store_release(word: &AtomicU64, value: u64) {
    #[cfg(not(loom))]
    word.store(value, Ordering::Release);
    #[cfg(loom)]
    word.swap(value, Ordering::AcqRel);
}
