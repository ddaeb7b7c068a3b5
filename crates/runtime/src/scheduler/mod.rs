//! The virtual processors, the loop that switches between microprocesses, and the instance that
//! owns them.
//!
//! The holder of a `Carrier` may touch its VP; other threads inject records and call the VP.
//! Methods of `Vp`, `Carrier` and `Instance` that need more than this room are defined above. May
//! use the rooms from `syscall` down.

pub(crate) mod carrier;
pub(crate) mod idling;
pub(crate) mod instance;
pub(crate) mod posts;
pub(crate) mod reprioritise;
pub(crate) mod switch;
pub(crate) mod thread_place;
pub(crate) mod vp;
