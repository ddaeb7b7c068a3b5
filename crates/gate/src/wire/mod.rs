//! The formats that two processes of a link exchange.
//!
//! Lives here: records over a socket, with a descriptor; errors as records; kinds of requests and
//! states of replies; the encoding of values, and the hash of their types; the credentials of a
//! socket's peer.
//!
//! Data: nothing is kept here. Functions encode what a higher room sends, and check what has come.
//!
//! Uses `error` alone.

pub mod codec;
pub(crate) mod error_record;
pub(crate) mod message;
pub(crate) mod packet;
pub(crate) mod peer;
#[doc(hidden)]
pub mod remote_call;
pub(crate) mod type_hash;
