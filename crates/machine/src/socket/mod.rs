//! Sockets to peers of the same machine, none of which is trusted.
//!
//! - [`disposal`]: closes descriptors of peers on kernel threads made for it.
//! - [`peer_socket`]: sockets to peers, which may pass descriptors.
//! - `connection`: a stream of lines to or from one peer.
//! - [`descriptors`]: the descriptors that the child of a fork must close.

pub(crate) mod connection;
pub mod descriptors;
pub mod disposal;
pub mod peer_socket;
