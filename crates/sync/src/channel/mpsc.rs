//! Channels with many senders and one receiver: rendezvous, bounded, unbounded. The API is
//! [`std::sync::mpsc`]'s, whose error types these are, with time limits added.
//!
//! `send` on a full or rendezvous channel and `recv` on an empty one *block* the microprocess (or
//! the kernel thread) and are *cancellation points* where they do; a message that had been
//! delivered to a cancelled receiver stays in the channel. Waiters are served by priority, then
//! first come first served. Sending *happens before* receiving that message.
//!
//! ```
//! use kumihimo_sync::mpsc;
//! let (sender, receiver) = mpsc::channel();
//! std::thread::spawn(move || (0..3).for_each(|n| sender.send(n).unwrap()));
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

/// Makes a channel without a bound: sending never blocks.
#[must_use]
pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
    let chan = Arc::new(Chan::new(usize::MAX));
    (Sender { chan: chan.clone() }, Receiver::new(chan))
}

/// Makes a channel that holds at most `bound` messages. With 0 every `send` waits until its message
/// was received.
#[must_use]
pub fn sync_channel<T>(bound: usize) -> (SyncSender<T>, Receiver<T>) {
    let chan = Arc::new(Chan::new(bound));
    (SyncSender { chan: chan.clone() }, Receiver::new(chan))
}

/// The sending end of [`channel`]. Clone it for more senders.
pub struct Sender<T> {
    pub(crate) chan: Arc<Chan<T>>,
}

/// The sending end of [`sync_channel`]. Clone it for more senders.
pub struct SyncSender<T> {
    pub(crate) chan: Arc<Chan<T>>,
}

/// The receiving end of [`channel`] and [`sync_channel`]. When it is dropped, messages still inside
/// are dropped too and senders get an error.
pub type Receiver<T> = receiver::Receiver<T, receiver::Exclusive>;

/// Iterator of `Receiver::iter`: blocks for each message until all senders are gone.
pub type Iter<'a, T> = receiver::Iter<'a, T, receiver::Exclusive>;

/// Iterator of `Receiver::try_iter`: ends where the channel is empty.
pub type TryIter<'a, T> = receiver::TryIter<'a, T, receiver::Exclusive>;

/// All messages of a [`Receiver`] that it owns.
pub type IntoIter<T> = receiver::IntoIter<T, receiver::Exclusive>;

// SAFETY: messages go from thread to thread, which `T: Send` allows; the channel itself is shared
// by design.
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
    /// Sends `value`. Never blocks.
    ///
    /// # Errors
    /// The value comes back if the receiver is gone. `Ok` does not mean that it will be received.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.chan
            .try_send(value)
            .map_err(|(TryError::Closed(value) | TryError::WouldBlock(value))| SendError(value))
    }
}

impl<T> SyncSender<T> {
    /// Sends `value`; waits while the channel is full, on a rendezvous channel until it was
    /// received.
    ///
    /// # Errors
    /// The value comes back if the receiver is gone.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        self.chan
            .send(value, None)
            .map_err(|(WaitError::Closed(value) | WaitError::TimedOut(value))| SendError(value))
    }

    /// Sends `value` if that is possible at once; on a rendezvous channel, if a receiver waits.
    ///
    /// # Errors
    /// The value comes back if the channel is full or the receiver gone.
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        self.chan.try_send(value).map_err(|e| match e {
            TryError::WouldBlock(value) => TrySendError::Full(value),
            TryError::Closed(value) => TrySendError::Disconnected(value),
        })
    }

    /// As [`send`](SyncSender::send), but gives up after `timeout`.
    ///
    /// # Errors
    /// The value comes back if the time is over or the receiver gone.
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.chan.send(value, deadline::after(timeout)).map_err(SendTimeoutError::from)
    }

    /// As [`send`](SyncSender::send), but gives up at `deadline`.
    ///
    /// # Errors
    /// The value comes back if the time is over or the receiver gone.
    pub fn send_until(&self, value: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.chan.send(value, Some(deadline)).map_err(SendTimeoutError::from)
    }
}

/// Why [`SyncSender::send_timeout`] gave the value back.
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum SendTimeoutError<T> {
    /// The time is over.
    Timeout(T),
    /// The receiver is gone.
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
