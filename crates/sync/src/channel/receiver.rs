//! The receiving end that `mpsc` and `mpmc` have in common. They differ in how it is shared: with
//! one thread at a time, or any number of threads and clones.

use crate::channel::chan::{Chan, TryError, WaitError};
use crate::wait::deadline;
use std::fmt;
use std::iter::FusedIterator;
use std::marker::PhantomData;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::mpsc::{RecvError, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

/// How a receiver is shared: not at all. Not `Sync`.
#[derive(Debug)]
pub struct Exclusive(PhantomData<std::cell::Cell<()>>);

/// How a receiver is shared: by reference and by clone.
#[derive(Debug)]
pub struct Shared(());

/// The receiving end of a channel. When the last one is dropped, messages still inside are dropped
/// too and senders get an error.
pub struct Receiver<T, S> {
    pub(super) chan: Arc<Chan<T>>,
    sharing: PhantomData<S>,
}

// SAFETY: messages go from thread to thread, which `T: Send` allows; the channel itself is shared
// by design.
unsafe impl<T: Send, S> Send for Receiver<T, S> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Receiver<T, Shared> {}
impl<T, S> UnwindSafe for Receiver<T, S> {}
impl<T, S> RefUnwindSafe for Receiver<T, S> {}

impl<T, S> Receiver<T, S> {
    pub(super) fn new(chan: Arc<Chan<T>>) -> Receiver<T, S> {
        Receiver { chan, sharing: PhantomData }
    }

    /// Receives the next message; waits for it.
    ///
    /// # Errors
    /// If the channel is empty and all senders are gone.
    pub fn recv(&self) -> Result<T, RecvError> {
        self.chan.recv(None).map_err(|_| RecvError)
    }

    /// Receives the next message if there is one.
    ///
    /// # Errors
    /// If the channel is empty; [`TryRecvError::Disconnected`] if all senders are gone besides.
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        self.chan.try_recv().map_err(|e| match e {
            TryError::WouldBlock(()) => TryRecvError::Empty,
            TryError::Closed(()) => TryRecvError::Disconnected,
        })
    }

    /// As [`recv`](Receiver::recv), but gives up after `timeout`.
    ///
    /// # Errors
    /// If the time is over, or the channel is empty and all senders are gone.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_limited(deadline::after(timeout))
    }

    /// As [`recv`](Receiver::recv), but gives up at `deadline`.
    ///
    /// # Errors
    /// If the time is over, or the channel is empty and all senders are gone.
    pub fn recv_until(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_limited(Some(deadline))
    }

    fn recv_limited(&self, deadline: Option<Instant>) -> Result<T, RecvTimeoutError> {
        self.chan.recv(deadline).map_err(|e| match e {
            WaitError::TimedOut(()) => RecvTimeoutError::Timeout,
            WaitError::Closed(()) => RecvTimeoutError::Disconnected,
        })
    }

    /// All messages that this receiver gets, waiting for each, until all senders are gone.
    pub fn iter(&self) -> Iter<'_, T, S> {
        Iter { receiver: self }
    }

    /// The messages that are there, without waiting.
    pub fn try_iter(&self) -> TryIter<'_, T, S> {
        TryIter { receiver: self }
    }
}

impl<T> Receiver<T, Shared> {
    /// How many messages are inside; out of date at once.
    pub fn len(&self) -> usize {
        self.chan.len()
    }

    /// Whether no message is inside; out of date at once.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// See [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T: 'a, S: 'a> {
    receiver: &'a Receiver<T, S>,
}

/// See [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T: 'a, S: 'a> {
    receiver: &'a Receiver<T, S>,
}

/// All messages of a [`Receiver`] that it owns.
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
