//! The server's side of a gate.
//!
//! Lives here: the service with its queue and workers; the link of each client; handlers, loops and
//! sinks.
//!
//! Data: when a VP polls a `ServerLink`, requests come from the lane into the `Service`'s queue. A
//! worker takes the one of the highest priority, runs the handler, and writes the reply into the
//! request's cell.
//!
//! Uses `link`, `handshake`, `wire`, `region` and `lane`; nothing of `client`.

pub(crate) mod handler_share;
pub(crate) mod request;
pub(crate) mod request_queue;
pub(crate) mod server_link;
pub(crate) mod server_loop;
pub(crate) mod service;
pub(crate) mod serving;
pub(crate) mod sink;
mod worker;
pub(crate) mod worker_pool;
