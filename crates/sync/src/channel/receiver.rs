//! Receiving end shared by `mpsc` and `mpmc`. A type parameter selects how it may be used: by one
//! thread at a time, or by several threads and through clones.

use crate::channel::chan::{Chan, TryError, WaitError};
use crate::wait::deadline;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::{RecvError, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// Marks a receiver that one thread at a time may use: it is not `Sync`.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::receiver::{Exclusive, Receiver};
/// use kumihimo::sync::mpsc;
///
/// let (sender, receiver): (_, Receiver<_, Exclusive>) = mpsc::channel();
/// sender.send(1).unwrap();
/// assert_eq!(receiver.recv(), Ok(1));
/// ```
#[derive(Debug)]
pub struct Exclusive(PhantomData<std::cell::Cell<()>>);

/// Marks a receiver that several threads may use, by reference and through clones.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpmc;
/// use kumihimo::sync::receiver::{Receiver, Shared};
///
/// let (sender, receiver): (_, Receiver<_, Shared>) = mpmc::channel();
/// let other = receiver.clone();
/// sender.send(1).unwrap();
/// assert_eq!(other.recv(), Ok(1));
/// ```
#[derive(Debug)]
pub struct Shared(());

/// Receiving end of a channel. Dropping the last receiver drops the buffered messages, and makes
/// senders fail.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpsc;
///
/// let (sender, receiver) = mpsc::channel();
/// sender.send("message").unwrap();
/// drop(sender);
/// assert_eq!(receiver.recv(), Ok("message"));
/// assert!(receiver.recv().is_err());
/// ```
pub struct Receiver<T, S> {
    pub(super) chan: Arc<Chan<T>>,
    sharing: PhantomData<S>,
}

// SAFETY: messages move from thread to thread, which `T: Send` allows; the channel's lock orders
// all other accesses.
unsafe impl<T: Send, S> Send for Receiver<T, S> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Receiver<T, Shared> {}
impl<T, S> UnwindSafe for Receiver<T, S> {}
impl<T, S> RefUnwindSafe for Receiver<T, S> {}

impl<T, S> Receiver<T, S> {
    pub(super) fn new(chan: Arc<Chan<T>>) -> Receiver<T, S> {
        Receiver { chan, sharing: PhantomData }
    }

    /// Receives the next message. Blocks the microprocess until there is one. A cancellation point
    /// if it blocks.
    ///
    /// # Errors
    /// Fails if the channel is empty and all senders are dropped.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.chan.recv(None).map_err(|_| RecvError)
    }

    /// Receives the next message if there is one. Never blocks.
    ///
    /// # Errors
    /// Returns [`TryRecvError::Disconnected`] if the channel is empty and all senders are dropped,
    /// and [`TryRecvError::Empty`] if it is only empty.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.chan.try_recv().map_err(|e| match e {
            TryError::WouldBlock(()) => TryRecvError::Empty,
            TryError::Closed(()) => TryRecvError::Disconnected,
        })
    }

    /// Receives like [`recv`](Receiver::recv), but gives up after `timeout`. Blocks the
    /// microprocess, at most until then.
    ///
    /// # Errors
    /// Fails if the timeout expires, or if the channel is empty and all senders are dropped.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_limited(deadline::after(timeout))
    }

    /// Receives like [`recv`](Receiver::recv), but gives up at `deadline`. Blocks the microprocess,
    /// at most until then.
    ///
    /// # Errors
    /// Fails if the deadline passes, or if the channel is empty and all senders are dropped.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::mpsc;
    /// use std::time::{Duration, Instant};
    ///
    /// // Collects the messages of 5 ms.
    /// let (sender, receiver) = mpsc::channel();
    /// sender.send("early").unwrap();
    /// let deadline = Instant::now() + Duration::from_millis(5);
    /// let batch: Vec<_> = std::iter::from_fn(|| receiver.recv_until(deadline).ok()).collect();
    /// assert_eq!(batch, ["early"]);
    /// ```
    pub fn recv_until(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_limited(Some(deadline))
    }

    fn recv_limited(&self, deadline: Option<Instant>) -> Result<T, RecvTimeoutError> {
        self.chan.recv(deadline).map_err(|e| match e {
            WaitError::TimedOut(()) => RecvTimeoutError::Timeout,
            WaitError::Closed(()) => RecvTimeoutError::Disconnected,
        })
    }

    /// Returns an iterator that blocks the microprocess for each message, until all senders are
    /// dropped.
    pub fn iter(&self) -> Iter<'_, T, S> {
        Iter { receiver: self }
    }

    /// Returns an iterator over the messages that can be received without blocking.
    pub fn try_iter(&self) -> TryIter<'_, T, S> {
        TryIter { receiver: self }
    }
}

impl<T> Receiver<T, Shared> {
    /// Returns the number of buffered messages. Other threads may change it at any time.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::mpmc;
    ///
    /// let (sender, receiver) = mpmc::channel();
    /// sender.send('q').unwrap();
    /// assert_eq!(receiver.len(), 1);
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
    /// let (sender, receiver) = mpmc::channel();
    /// assert!(receiver.is_empty());
    /// sender.send('q').unwrap();
    /// assert!(!receiver.is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// See [`Receiver::iter`].
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpsc;
///
/// let (sender, receiver) = mpsc::channel();
/// (1..=3).for_each(|n| sender.send(n).unwrap());
/// drop(sender);
/// assert_eq!(receiver.iter().sum::<i32>(), 6);
/// ```
#[derive(Debug)]
pub struct Iter<'a, T: 'a, S: 'a> {
    receiver: &'a Receiver<T, S>,
}

/// See [`Receiver::try_iter`].
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpsc;
///
/// let (sender, receiver) = mpsc::channel();
/// sender.send(1).unwrap();
/// assert_eq!(receiver.try_iter().count(), 1);
/// ```
#[derive(Debug)]
pub struct TryIter<'a, T: 'a, S: 'a> {
    receiver: &'a Receiver<T, S>,
}

/// Iterator that owns its [`Receiver`]: blocks the microprocess for each message, until all senders
/// are dropped.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::mpsc;
///
/// let (sender, receiver) = mpsc::channel();
/// sender.send('x').unwrap();
/// drop(sender);
/// assert_eq!(receiver.into_iter().collect::<String>(), "x");
/// ```
#[derive(Debug)]
pub struct IntoIter<T, S> {
    receiver: Receiver<T, S>,
}

impl<T, S> Iterator for Iter<'_, T, S> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T, S> Iterator for TryIter<'_, T, S> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.receiver.try_recv().ok()
    }
}

impl<T, S> Iterator for IntoIter<T, S> {
    type Item = T;
    fn next(&mut self) -> Option<T> {
        self.receiver.recv().ok()
    }
}

impl<T, S> FusedIterator for Iter<'_, T, S> {}
impl<T, S> FusedIterator for IntoIter<T, S> {}

impl<'a, T, S> IntoIterator for &'a Receiver<T, S> {
    type Item = T;
    type IntoIter = Iter<'a, T, S>;
    fn into_iter(self) -> Iter<'a, T, S> {
        self.iter()
    }
}

impl<T, S> IntoIterator for Receiver<T, S> {
    type Item = T;
    type IntoIter = IntoIter<T, S>;
    fn into_iter(self) -> IntoIter<T, S> {
        IntoIter { receiver: self }
    }
}

impl<T> Clone for Receiver<T, Shared> {
    fn clone(&self) -> Receiver<T, Shared> {
        self.chan.add_receiver();
        Receiver::new(self.chan.clone())
    }
}

impl<T, S> Drop for Receiver<T, S> {
    fn drop(&mut self) {
        self.chan.drop_receiver();
    }
}

impl<T, S> fmt::Debug for Receiver<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}
