//! Errors of sending and receiving messages.

use std::fmt;

/// Why `send_recv` returned without a reply.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::msg::{self, SendRecvError};
/// use kumihimo::thread;
///
/// let (address, mailbox) = msg::mailbox::<u8, ()>();
/// thread::scope(|s| {
///     s.spawn(|| drop(mailbox.receive().unwrap()));
///     assert_eq!(address.send_recv(1), Err(SendRecvError::Unanswered));
/// });
/// drop(mailbox);
/// assert_eq!(address.send_recv(2), Err(SendRecvError::Closed(2)));
/// ```
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum SendRecvError<Q> {
    /// The mailbox is gone. Holds the request.
    Closed(Q),
    /// A server received the request and dropped it without a reply.
    Unanswered,
    /// The timeout expired or the deadline passed. Holds the request if no server had received it.
    Timeout(Option<Q>),
}

/// Why [`Mailbox::try_receive`](super::Mailbox::try_receive) and the receives with a time limit
/// returned without a request.
///
/// # Examples
///
/// ```
/// use kumihimo::sync::msg::{self, ReceiveError};
///
/// let (_address, mailbox) = msg::mailbox::<u8, ()>();
/// match mailbox.try_receive() {
///     Err(ReceiveError::Empty) => {}
///     other => panic!("nothing was sent, but: {other:?}"),
/// }
/// ```
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum ReceiveError {
    /// There was no request, at once or within the time limit.
    Empty,
    /// There is no request, and all addresses are dropped.
    Closed,
}

impl<Q> fmt::Debug for SendRecvError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendRecvError::Closed(_) => "Closed(..)",
            SendRecvError::Unanswered => "Unanswered",
            SendRecvError::Timeout(_) => "Timeout(..)",
        })
    }
}

impl<Q> fmt::Display for SendRecvError<Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendRecvError::Closed(_) => "sending to a closed mailbox",
            SendRecvError::Unanswered => "the request was dropped without a reply",
            SendRecvError::Timeout(_) => "timed out waiting for the reply",
        })
    }
}

impl<Q> std::error::Error for SendRecvError<Q> {}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ReceiveError::Empty => "no request in the mailbox",
            ReceiveError::Closed => "no request in the mailbox, and all addresses are gone",
        })
    }
}

impl std::error::Error for ReceiveError {}
