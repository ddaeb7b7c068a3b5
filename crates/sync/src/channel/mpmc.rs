//! Multi-producer, multi-consumer channels: rendezvous, bounded and unbounded. Each message goes to
//! one receiver. The API and the errors are those of [`mpsc`](crate::channel::mpsc), but the
//! receiving end can be cloned and shared.
//!
//! `send` on a full or rendezvous channel and `recv` on an empty channel *block* the microprocess,
//! or the kernel thread if the caller is not a microprocess. Both are *cancellation points* if they
//! block. A message already delivered to a cancelled receiver goes to another receiver. Waiters are
//! served by priority, then in order of arrival. Sending a message *happens before* receiving it.
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

/// Creates an unbounded channel: sending never blocks.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    make(usize::MAX)
}

/// Creates a channel that buffers at most `bound` messages. With 0, every `send` waits until its
/// message is received.
#[must_use]
pub fn sync_channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    make(bound)
}

fn make<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    let chan = Arc::new(Chan::new(bound));
    (Sender { chan: chan.clone() }, Receiver::new(chan))
}

/// Sending end of a channel. Clones send to the same channel.
pub struct Sender<T> {
    pub(crate) chan: Arc<Chan<T>>,
}

/// Receiving end of a channel. Clones receive from the same channel.
pub type Receiver<T> = receiver::Receiver<T, receiver::Shared>;

/// Iterator returned by `Receiver::iter`: blocks for each message until all senders are dropped.
pub type Iter<'a, T> = receiver::Iter<'a, T, receiver::Shared>;

/// Iterator returned by `Receiver::try_iter`: ends when the channel is empty.
pub type TryIter<'a, T> = receiver::TryIter<'a, T, receiver::Shared>;

/// Iterator that owns its [`Receiver`]: blocks for each message until all senders are dropped.
pub type IntoIter<T> = receiver::IntoIter<T, receiver::Shared>;

// SAFETY: messages move from thread to thread, which `T: Send` allows; the channel's lock orders
// all other accesses.
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Sender<T> {}
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> Sender<T> {
    /// Sends `value`, blocking while the channel is full. On a rendezvous channel, blocks until the
    /// message is received.
    ///
    /// # Errors
    /// Returns the value if all receivers are dropped.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.chan
            .send(value, None)
            .map_err(|(WaitError::Closed(value) | WaitError::TimedOut(value))| SendError(value))
    }

    /// Sends `value` without blocking. On a rendezvous channel this succeeds only if a receiver
    /// waits.
    ///
    /// # Errors
    /// Returns the value if the channel is full or all receivers are dropped.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.chan.try_send(value).map_err(|e| match e {
            TryError::WouldBlock(value) => TrySendError::Full(value),
            TryError::Closed(value) => TrySendError::Disconnected(value),
        })
    }

    /// Sends `value` like [`send`](Sender::send), but gives up after `timeout`.
    ///
    /// # Errors
    /// Returns the value if the timeout expires or all receivers are dropped.
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.chan.send(value, deadline::after(timeout)).map_err(SendTimeoutError::from)
    }

    /// Sends `value` like [`send`](Sender::send), but gives up at `deadline`.
    ///
    /// # Errors
    /// Returns the value if the deadline passes or all receivers are dropped.
    pub fn send_until(&self, value: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.chan.send(value, Some(deadline)).map_err(SendTimeoutError::from)
    }

    /// Returns the number of buffered messages. Other threads may change it at any time.
    pub fn len(&self) -> usize {
        self.chan.len()
    }

    /// Returns whether the buffer holds no message. Other threads may change this at any time.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of buffered messages, or `None` for an unbounded channel.
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
