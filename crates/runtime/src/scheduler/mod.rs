//! The virtual processors, the loop that switches between microprocesses, and the instance that
//! owns them.
//!
//! The holder of a `Carrier` has exclusive access to its VP. Other threads inject records into the
//! VP's queue and wake it. Methods of `Vp`, `Carrier` and `Instance` that need a higher room are
//! defined in that room. May use the rooms from `syscall` down.

pub(crate) mod carrier;
pub(crate) mod core_watch;
pub(crate) mod idling;
pub(crate) mod instance;
pub(crate) mod parking;
pub(crate) mod posts;
pub(crate) mod reprioritise;
pub(crate) mod retirement;
pub(crate) mod switch;
pub(crate) mod thread_place;
pub(crate) mod vp;
