//! Multi-producer, multi-consumer channels: rendezvous, bounded and unbounded. Each message goes to
//! one receiver. The API and the errors are those of [`mpsc`](crate::channel::mpsc), but the
//! receiving end can be cloned and shared.
//!
//! `send` on a full or rendezvous channel and `recv` on an empty channel *block* the microprocess,
//! or the kernel thread if the caller is not a microprocess. Both are *cancellation points* if they
//! block. A message already delivered to a cancelled receiver goes to another receiver. Waiters are
//! served by priority, then in order of arrival. Sending a message *happens before* receiving it.
//!
//! # Examples
//!
//! ```
//! use kumihimo::sync::mpmc;
//! use kumihimo::thread;
//!
//! let (sender, receiver) = mpmc::sync_channel(4);
//! let total: u32 = thread::scope(|s| {
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
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpmc;
///
/// let (sender, receiver) = mpmc::channel();
/// let other = receiver.clone();
/// sender.send("first").unwrap();
/// sender.send("second").unwrap();
/// // Each message goes to one receiver.
/// assert_eq!(receiver.recv(), Ok("first"));
/// assert_eq!(other.recv(), Ok("second"));
/// ```
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    make(usize::MAX)
}

/// Creates a channel that buffers at most `bound` messages. With 0, every `send` waits until its
/// message is received.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpmc;
/// use kumihimo::thread;
///
/// let (sender, receiver) = mpmc::sync_channel(1);
/// let workers: Vec<_> = (0..2)
///     .map(|_| {
///         let receiver = receiver.clone();
///         thread::spawn(move || receiver.iter().count())
///     })
///     .collect();
/// (0..10).for_each(|job| sender.send(job).unwrap());
/// drop(sender);
/// assert_eq!(workers.into_iter().map(|w| w.join().unwrap()).sum::<usize>(), 10);
/// ```
#[must_use]
pub fn sync_channel<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    make(bound)
}

fn make<T>(bound: usize) -> (Sender<T>, Receiver<T>) {
    let chan = Arc::new(Chan::new(bound));
    (Sender { chan: chan.clone() }, Receiver::new(chan))
}

/// Sending end of a channel. Clones send to the same channel.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpmc;
///
/// let (sender, receiver) = mpmc::sync_channel(8);
/// let other = sender.clone();
/// sender.send(1).unwrap();
/// other.send(2).unwrap();
/// drop((sender, other));
/// assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2]);
/// ```
pub struct Sender<T> {
    pub(crate) chan: Arc<Chan<T>>,
}

/// Receiving end of a channel. Clones receive from the same channel. `recv`, `recv_timeout`,
/// `recv_until` and `iter` block the microprocess; `try_recv` and `try_iter` never block. `len` and
/// `is_empty` describe the buffer.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpmc::{self, Receiver};
/// use kumihimo::thread;
///
/// let (sender, receiver): (_, Receiver<u32>) = mpmc::channel();
/// (1..=10).for_each(|n| sender.send(n).unwrap());
/// drop(sender);
/// assert_eq!(receiver.len(), 10);
/// let sum: u32 = thread::scope(|s| {
///     // Both microprocesses receive from the same receiver.
///     let work = || s.spawn(|| receiver.iter().sum::<u32>());
///     [work(), work()].map(|worker| worker.join().unwrap()).iter().sum()
/// });
/// assert_eq!(sum, 55);
/// ```
pub type Receiver<T> = receiver::Receiver<T, receiver::Shared>;

/// Iterator returned by `Receiver::iter`: blocks the microprocess for each message, until all
/// senders are dropped.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpmc;
///
/// let (sender, receiver) = mpmc::channel();
/// sender.send(4).unwrap();
/// drop(sender);
/// let mut messages = receiver.iter();
/// assert_eq!(messages.next(), Some(4));
/// assert_eq!(messages.next(), None, "all senders are dropped");
/// ```
pub type Iter<'a, T> = receiver::Iter<'a, T, receiver::Shared>;

/// Iterator returned by `Receiver::try_iter`: ends when the channel is empty.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpmc;
///
/// let (sender, receiver) = mpmc::channel();
/// sender.send(1).unwrap();
/// sender.send(2).unwrap();
/// assert_eq!(receiver.try_iter().count(), 2);
/// assert_eq!(receiver.try_iter().count(), 0);
/// ```
pub type TryIter<'a, T> = receiver::TryIter<'a, T, receiver::Shared>;

/// Iterator that owns its [`Receiver`]: blocks the microprocess for each message, until all senders
/// are dropped.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpmc;
///
/// let (sender, receiver) = mpmc::channel();
/// sender.send('o').unwrap();
/// sender.send('k').unwrap();
/// drop(sender);
/// assert_eq!(receiver.into_iter().collect::<String>(), "ok");
/// ```
pub type IntoIter<T> = receiver::IntoIter<T, receiver::Shared>;

// SAFETY: messages move from thread to thread, which `T: Send` allows; the channel's lock orders
// all other accesses.
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Sender<T> {}
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> Sender<T> {
    /// Sends `value`. Blocks the microprocess while the channel is full, and on a rendezvous
    /// channel until the message is received.
    ///
    /// # Errors
    /// Returns the value if all receivers are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::mpmc::{self, SendError};
    ///
    /// let (sender, receiver) = mpmc::sync_channel(1);
    /// sender.send(5).unwrap();
    /// assert_eq!(receiver.recv(), Ok(5));
    /// drop(receiver);
    /// assert_eq!(sender.send(6), Err(SendError(6)));
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::mpmc::{self, TrySendError};
    ///
    /// let (sender, receiver) = mpmc::sync_channel(1);
    /// assert_eq!(sender.try_send('a'), Ok(()));
    /// assert_eq!(sender.try_send('b'), Err(TrySendError::Full('b')));
    /// drop(receiver);
    /// assert_eq!(sender.try_send('c'), Err(TrySendError::Disconnected('c')));
    /// ```
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.chan.try_send(value).map_err(|e| match e {
            TryError::WouldBlock(value) => TrySendError::Full(value),
            TryError::Closed(value) => TrySendError::Disconnected(value),
        })
    }

    /// Sends `value` like [`send`](Sender::send), but gives up after `timeout`. Blocks the
    /// microprocess, at most until then.
    ///
    /// # Errors
    /// Returns the value if the timeout expires or all receivers are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::mpmc::{self, SendTimeoutError};
    /// use std::time::Duration;
    ///
    /// // A rendezvous channel without a waiting receiver.
    /// let (sender, _receiver) = mpmc::sync_channel(0);
    /// let outcome = sender.send_timeout(1, Duration::from_millis(5));
    /// assert_eq!(outcome, Err(SendTimeoutError::Timeout(1)));
    /// ```
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.chan.send(value, deadline::after(timeout)).map_err(SendTimeoutError::from)
    }

    /// Sends `value` like [`send`](Sender::send), but gives up at `deadline`. Blocks the
    /// microprocess, at most until then.
    ///
    /// # Errors
    /// Returns the value if the deadline passes or all receivers are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::mpmc;
    /// use std::time::{Duration, Instant};
    ///
    /// // Ten sends share one deadline. The buffer has room for six messages.
    /// let (sender, receiver) = mpmc::sync_channel(6);
    /// let deadline = Instant::now() + Duration::from_millis(5);
    /// let sent = (0..10).take_while(|n| sender.send_until(*n, deadline).is_ok()).count();
    /// assert_eq!((sent, receiver.len()), (6, 6));
    /// ```
    pub fn send_until(&self, value: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.chan.send(value, Some(deadline)).map_err(SendTimeoutError::from)
    }

    /// Returns the number of buffered messages. Other threads may change it at any time.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::mpmc;
    ///
    /// let (sender, receiver) = mpmc::channel();
    /// sender.send(1).unwrap();
    /// sender.send(2).unwrap();
    /// assert_eq!(sender.len(), 2);
    /// receiver.recv().unwrap();
    /// assert_eq!(sender.len(), 1);
    /// ```
    pub fn len(&self) -> usize {
        self.chan.len()
    }

    /// Returns whether the buffer holds no message. Other threads may change this at any time.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::mpmc;
    ///
    /// let (sender, _receiver) = mpmc::channel();
    /// assert!(sender.is_empty());
    /// sender.send(()).unwrap();
    /// assert!(!sender.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the maximum number of buffered messages, or `None` for an unbounded channel.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::mpmc;
    ///
    /// let (bounded, _receiver) = mpmc::sync_channel::<u8>(16);
    /// let (unbounded, _receiver) = mpmc::channel::<u8>();
    /// assert_eq!(bounded.capacity(), Some(16));
    /// assert_eq!(unbounded.capacity(), None);
    /// ```
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
