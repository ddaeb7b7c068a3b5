//! Channels with many senders and many receivers, each message going to one of them: rendezvous,
//! bounded, unbounded. Like [`mpsc`](crate::channel::mpsc), whose errors these are, but the
//! receiving end can be cloned and shared.
//!
//! `send` on a full or rendezvous channel and `recv` on an empty one *block* the microprocess (or
//! the kernel thread) and are *cancellation points* where they do; a message that had been
//! delivered to a cancelled receiver goes to another. Waiters are served by priority, then first
//! come first served. Sending *happens before* receiving that message.
//!
//! ```
//! use kumihimo_sync::mpmc;
//! let (sender, receiver) = mpmc::sync_channel(4);
//! let total: u32 = std::thread::scope(|s| {
//!     let work = |_| {
//!         let receiver = receiver.clone();
//!         s.spawn(move || receiver.iter().sum::<u32>())
//!     };
//!     let workers: Vec<_> = (0..3).map(work).collect();
//!     (1..=100).for_each(|n| sender.send(n).unwrap());
//!     drop(sender);
//!     workers.into_iter().map(|w| w.join().unwrap()).sum()
//! });
//! assert_eq!(total, 5050);
//! ```

pub use crate::channel::mpsc::{
    RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};

use super::receiver;
use crate::channel::chan::{Chan, TryError, WaitError};
use crate::wait::deadline;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Makes a channel without a bound: sending never blocks.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    make(usize::MAX)
}

/// Makes a channel that holds at most `bound` messages. With 0 every `send` waits until its message
/// was received.
#[must_use]
pub fn sync_channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    make(bound)
}

fn make<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    let chan = Arc::new(Chan::new(bound));
    (Sender { chan: chan.clone() }, Receiver::new(chan))
}

/// The sending end. Clone it for more senders.
pub struct Sender<T> {
    pub(crate) chan: Arc<Chan<T>>,
}

/// The receiving end. Clone it for more receivers.
pub type Receiver<T> = receiver::Receiver<T, receiver::Shared>;

/// Iterator of `Receiver::iter`: blocks for each message until all senders are gone.
pub type Iter<'a, T> = receiver::Iter<'a, T, receiver::Shared>;

/// Iterator of `Receiver::try_iter`: ends where the channel is empty.
pub type TryIter<'a, T> = receiver::TryIter<'a, T, receiver::Shared>;

/// All messages of a [`Receiver`] that it owns.
pub type IntoIter<T> = receiver::IntoIter<T, receiver::Shared>;

// SAFETY: messages go from thread to thread, which `T: Send` allows; the channel itself is shared
// by design.
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Sender<T> {}
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> Sender<T> {
    /// Sends `value`; waits while the channel is full, on a rendezvous channel until it was
    /// received.
    ///
    /// # Errors
    /// The value comes back if all receivers are gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.chan
            .send(value, None)
            .map_err(|(WaitError::Closed(value) | WaitError::TimedOut(value))| SendError(value))
    }

    /// Sends `value` if that is possible at once; on a rendezvous channel, if a receiver waits.
    ///
    /// # Errors
    /// The value comes back if the channel is full or all receivers are gone.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.chan.try_send(value).map_err(|e| match e {
            TryError::WouldBlock(value) => TrySendError::Full(value),
            TryError::Closed(value) => TrySendError::Disconnected(value),
        })
    }

    /// As [`send`](Sender::send), but gives up after `timeout`.
    ///
    /// # Errors
    /// The value comes back if the time is over or all receivers are gone.
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.chan.send(value, deadline::after(timeout)).map_err(SendTimeoutError::from)
    }

    /// As [`send`](Sender::send), but gives up at `deadline`.
    ///
    /// # Errors
    /// The value comes back if the time is over or all receivers are gone.
    pub fn send_until(&self, value: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.chan.send(value, Some(deadline)).map_err(SendTimeoutError::from)
    }

    /// How many messages are inside; out of date at once.
    pub fn len(&self) -> usize {
        self.chan.len()
    }

    /// Whether no message is inside; out of date at once.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many messages fit; None if there is no bound.
    pub fn capacity(&self) -> Option<usize> {
        self.chan.capacity()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.chan.add_sender();
        Sender { chan: self.chan.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.chan.drop_sender();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}
