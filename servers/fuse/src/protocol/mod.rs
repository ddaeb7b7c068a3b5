//! The FUSE protocol: one request in, one reply out (fuse(4), include/uapi/linux/fuse.h).
//!
//! `wire.rs` parses requests and builds replies, `negotiate.rs` answers `FUSE_INIT`,
//! `interrupts.rs` tracks interrupted requests. `service.rs` dispatches a request to its handler in
//! `requests/`, which calls the [`Store`](kumihimo_store::Store) and fills the reply.
//!
//! Nothing here refers to threads, mounts or organisations, and nothing waits except inside the
//! store.

pub(crate) mod interrupts;
pub(crate) mod negotiate;
mod requests;
pub(crate) mod service;
pub(crate) mod wire;
