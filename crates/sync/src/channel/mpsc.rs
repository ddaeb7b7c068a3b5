//! Multi-producer, single-consumer channels: rendezvous, bounded and unbounded. The API and the
//! error types are those of [`std::sync::mpsc`], with timeouts and deadlines added.
//!
//! `send` on a full or rendezvous channel and `recv` on an empty channel *block* the microprocess,
//! or the kernel thread if the caller is not a microprocess. Both are *cancellation points* if they
//! block. A message already delivered to a cancelled receiver stays in the channel. Waiters are
//! served by priority, then in order of arrival. Sending a message *happens before* receiving it.
//!
//! # Examples
//!
//! ```
//! use kumihimo::sync::mpsc;
//! use kumihimo::thread;
//!
//! let (sender, receiver) = mpsc::channel();
//! thread::spawn(move || (0..3).for_each(|n| sender.send(n).unwrap()));
//! assert_eq!(receiver.iter().sum::<i32>(), 3);
//! ```

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError, TryRecvError, TrySendError};

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
/// use kumihimo::sync::mpsc;
/// use kumihimo::thread;
///
/// let (sender, receiver) = mpsc::channel();
/// for n in 1..=4 {
///     let sender = sender.clone();
///     thread::spawn(move || sender.send(n * n).unwrap());
/// }
/// drop(sender);
/// assert_eq!(receiver.iter().sum::<i32>(), 30);
/// ```
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let chan = Arc::new(Chan::new(usize::MAX));
    (Sender { chan: chan.clone() }, Receiver::new(chan))
}

/// Creates a channel that buffers at most `bound` messages. With 0, every `send` waits until its
/// message is received.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpsc::{TrySendError, sync_channel};
///
/// let (sender, receiver) = sync_channel(2);
/// sender.send('a').unwrap();
/// sender.send('b').unwrap();
/// assert_eq!(sender.try_send('c'), Err(TrySendError::Full('c')));
/// assert_eq!(receiver.recv(), Ok('a'));
/// assert_eq!(sender.try_send('c'), Ok(()));
/// ```
#[must_use]
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let chan = Arc::new(Chan::new(bound));
    (SyncSender { chan: chan.clone() }, Receiver::new(chan))
}

/// Sending end of [`channel`]. Clones send to the same channel.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpsc::{self, SendError};
///
/// let (sender, receiver) = mpsc::channel();
/// let other = sender.clone();
/// other.send(1).unwrap();
/// assert_eq!(receiver.recv(), Ok(1));
/// drop(receiver);
/// assert_eq!(sender.send(2), Err(SendError(2)));
/// ```
pub struct Sender<T> {
    pub(crate) chan: Arc<Chan<T>>,
}

/// Sending end of [`sync_channel`]. Clones send to the same channel.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpsc;
/// use kumihimo::thread;
///
/// // With bound 0, `send` returns when the message is received.
/// let (sender, receiver) = mpsc::sync_channel(0);
/// let other = sender.clone();
/// thread::scope(|s| {
///     s.spawn(move || sender.send("left").unwrap());
///     s.spawn(move || other.send("right").unwrap());
///     let mut both: Vec<_> = receiver.iter().collect();
///     both.sort();
///     assert_eq!(both, ["left", "right"]);
/// });
/// ```
pub struct SyncSender<T> {
    pub(crate) chan: Arc<Chan<T>>,
}

/// Receiving end of [`channel`] and [`sync_channel`]. Dropping it drops the buffered messages, and
/// makes senders fail. `recv`, `recv_timeout`, `recv_until` and `iter` block the microprocess;
/// `try_recv` and `try_iter` never block.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
/// use std::time::{Duration, Instant};
///
/// let (sender, receiver): (_, Receiver<u8>) = mpsc::channel();
/// assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty));
/// let deadline = Instant::now() + Duration::from_millis(5);
/// assert_eq!(receiver.recv_until(deadline), Err(RecvTimeoutError::Timeout));
/// sender.send(7).unwrap();
/// assert_eq!(receiver.recv(), Ok(7));
/// ```
pub type Receiver<T> = receiver::Receiver<T, receiver::Exclusive>;

/// Iterator returned by `Receiver::iter`: blocks the microprocess for each message, until all
/// senders are dropped.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpsc;
/// use kumihimo::thread;
///
/// let (sender, receiver) = mpsc::channel();
/// thread::spawn(move || (1..=3).for_each(|n| sender.send(n).unwrap()));
/// let mut messages = receiver.iter();
/// assert_eq!(messages.next(), Some(1));
/// assert_eq!(messages.sum::<i32>(), 5);
/// ```
pub type Iter<'a, T> = receiver::Iter<'a, T, receiver::Exclusive>;

/// Iterator returned by `Receiver::try_iter`: ends when the channel is empty.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpsc;
///
/// let (sender, receiver) = mpsc::channel();
/// sender.send('x').unwrap();
/// sender.send('y').unwrap();
/// // `sender` still exists, but the iterator does not wait for it.
/// assert_eq!(receiver.try_iter().collect::<String>(), "xy");
/// ```
pub type TryIter<'a, T> = receiver::TryIter<'a, T, receiver::Exclusive>;

/// Iterator that owns its [`Receiver`]: blocks the microprocess for each message, until all senders
/// are dropped.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpsc;
///
/// let (sender, receiver) = mpsc::channel();
/// sender.send(2).unwrap();
/// sender.send(3).unwrap();
/// drop(sender);
/// let mut product = 1;
/// for n in receiver {
///     product *= n;
/// }
/// assert_eq!(product, 6);
/// ```
pub type IntoIter<T> = receiver::IntoIter<T, receiver::Exclusive>;

// SAFETY: messages move from thread to thread, which `T: Send` allows; the channel's lock orders
// all other accesses.
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for SyncSender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for SyncSender<T> {}
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}
impl<T> UnwindSafe for SyncSender<T> {}
impl<T> RefUnwindSafe for SyncSender<T> {}

impl<T> Sender<T> {
    /// Sends `value`. Never blocks. `Ok` does not mean that the message will be received: the
    /// receiver may be dropped first.
    ///
    /// # Errors
    /// Returns the value if the receiver is dropped.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.chan
            .try_send(value)
            .map_err(|(TryError::Closed(value) | TryError::WouldBlock(value))| SendError(value))
    }
}

impl<T> SyncSender<T> {
    /// Sends `value`. Blocks the microprocess while the channel is full, and on a rendezvous
    /// channel until the message is received.
    ///
    /// # Errors
    /// Returns the value if the receiver is dropped.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.chan
            .send(value, None)
            .map_err(|(WaitError::Closed(value) | WaitError::TimedOut(value))| SendError(value))
    }

    /// Sends `value` without blocking. On a rendezvous channel this succeeds only if the receiver
    /// waits.
    ///
    /// # Errors
    /// Returns the value if the channel is full or the receiver is dropped.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.chan.try_send(value).map_err(|e| match e {
            TryError::WouldBlock(value) => TrySendError::Full(value),
            TryError::Closed(value) => TrySendError::Disconnected(value),
        })
    }

    /// Sends `value` like [`send`](SyncSender::send), but gives up after `timeout`. Blocks the
    /// microprocess, at most until then.
    ///
    /// # Errors
    /// Returns the value if the timeout expires or the receiver is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::mpsc::{self, SendTimeoutError};
    /// use std::time::Duration;
    ///
    /// let (sender, _receiver) = mpsc::sync_channel(1);
    /// sender.send(1).unwrap();
    /// let outcome = sender.send_timeout(2, Duration::from_millis(5));
    /// assert_eq!(outcome, Err(SendTimeoutError::Timeout(2)));
    /// ```
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.chan.send(value, deadline::after(timeout)).map_err(SendTimeoutError::from)
    }

    /// Sends `value` like [`send`](SyncSender::send), but gives up at `deadline`. Blocks the
    /// microprocess, at most until then.
    ///
    /// # Errors
    /// Returns the value if the deadline passes or the receiver is dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::mpsc;
    /// use kumihimo::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let (sender, receiver) = mpsc::sync_channel(0);
    /// let reader = thread::spawn(move || receiver.recv());
    /// assert_eq!(sender.send_until("now", Instant::now() + Duration::from_secs(60)), Ok(()));
    /// assert_eq!(reader.join().unwrap(), Ok("now"));
    /// ```
    pub fn send_until(&self, value: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.chan.send(value, Some(deadline)).map_err(SendTimeoutError::from)
    }
}

/// Error of a send with a time limit, with the value that was not sent.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpsc::{self, SendTimeoutError};
/// use std::time::Duration;
///
/// let (sender, receiver) = mpsc::sync_channel(0);
/// drop(receiver);
/// match sender.send_timeout("parcel", Duration::from_millis(5)) {
///     Err(SendTimeoutError::Disconnected(value)) => assert_eq!(value, "parcel"),
///     other => panic!("{other:?}"),
/// }
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum SendTimeoutError<T> {
    /// The timeout expired or the deadline passed.
    Timeout(T),
    /// All receivers are dropped.
    Disconnected(T),
}

impl<T> From<WaitError<T>> for SendTimeoutError<T> {
    fn from(failed: WaitError<T>) -> SendTimeoutError<T> {
        match failed {
            WaitError::TimedOut(value) => SendTimeoutError::Timeout(value),
            WaitError::Closed(value) => SendTimeoutError::Disconnected(value),
        }
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Timeout(_) => "Timeout(..)",
            SendTimeoutError::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Timeout(_) => "timed out waiting on send operation",
            SendTimeoutError::Disconnected(_) => "sending on a closed channel",
        })
    }
}

impl<T> std::error::Error for SendTimeoutError<T> {}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        self.chan.add_sender();
        Sender { chan: self.chan.clone() }
    }
}

impl<T> Clone for SyncSender<T> {
    fn clone(&self) -> SyncSender<T> {
        self.chan.add_sender();
        SyncSender { chan: self.chan.clone() }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        self.chan.drop_sender();
    }
}

impl<T> Drop for SyncSender<T> {
    fn drop(&mut self) {
        self.chan.drop_sender();
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<T> fmt::Debug for SyncSender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SyncSender").finish_non_exhaustive()
    }
}
