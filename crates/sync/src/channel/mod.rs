//! Channels, and `select!`, the wait for the first of several channel operations.
//!
//! `chan` is the channel: a `buffer` and two wait lists under a `channel_lock`. `mpsc` and `mpmc`
//! are the public ends and share `receiver`. `select` waits at several channels. Depends on `wait`.

mod buffer;
pub(crate) mod chan;
mod channel_lock;
pub mod mpmc;
pub mod mpsc;
pub(crate) mod receiver;
#[doc(hidden)]
pub mod select;
