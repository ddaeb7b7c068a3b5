//! FUSE protocol: one request in, one reply out (fuse(4), include/uapi/linux/fuse.h).
//!
//! `wire.rs` parses requests and builds replies, `negotiate.rs` handles `FUSE_INIT`, and
//! `interrupts.rs` tracks interrupted requests. `service.rs` dispatches a request to its handler in
//! `requests/`, which calls the [`Store`](kumihimo_store::Store) and fills the reply.
//!
//! This module does not depend on threads, mounts or organisations, and waits only inside the
//! store.

pub(crate) mod interrupts;
pub(crate) mod negotiate;
mod requests;
pub(crate) mod service;
pub(crate) mod wire;
