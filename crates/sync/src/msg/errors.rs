//! Why a message did not get through.

use std::fmt;

/// Why there is no reply.
#[derive(PartialEq, Eq, Clone, Copy)]
pub enum SendRecvError<Q> {
    /// The mailbox is gone; here is the request back.
    Closed(Q),
    /// The request was received, but dropped without a reply.
    Unanswered,
    /// The time is over. The request comes back if nobody had received it.
    Timeout(Option<Q>),
}

/// Why [`Mailbox::try_receive`](super::Mailbox::try_receive) and its kin returned without a
/// request.
#[derive(PartialEq, Eq, Clone, Copy, Debug)]
pub enum ReceiveError {
    /// There was none (in time).
    Empty,
    /// There is none, and all addresses are gone.
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
