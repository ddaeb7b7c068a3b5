//! Channels: messages from senders to receivers, and the wait for the first of several channels.
//!
//! `chan` is the channel itself: a `buffer` and two wait lists under a `channel_lock`. `mpsc` and
//! `mpmc` are its ends as users see them, with one `receiver` in common; `select` waits at several.
//! Uses `wait`.

mod buffer;
pub(crate) mod chan;
mod channel_lock;
pub mod mpmc;
pub mod mpsc;
mod receiver;
#[doc(hidden)]
pub mod select;
