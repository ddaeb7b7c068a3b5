//! A lane: memory that a client and a server share, through which requests and replies go without a
//! system call.
//!
//! A lane has a number of cells, and two rings of entries that name cells: requests one way,
//! replies the other. The client owns the cells. One is lent to the server from the push of its
//! request until its reply is popped, and the server answers each request once, also one that is
//! cancelled. [`ClientEnd`] is the client's side, [`ServerEnd`] the server's; any number of kernel
//! threads may use either at once.
//!
//! A process that shares the memory may write anything there, at any time. So each word is loaded
//! once and checked before use, against what this side keeps in memory of its own; payloads are
//! copied out before they are looked at. What does not follow the protocol is
//! [`ErrorKind::Malformed`](crate::ErrorKind::Malformed), after which the lane is to be given up.
//!
//! # Waking
//! A lane wakes no thread. A push ends in a release store; a thread that then has to wake the other
//! side rings its row (crates/arbiter), which begins with a full fence. A thread that goes to sleep
//! asks [`ClientEnd::has_replies`] or [`ServerEnd::has_requests`] once more after
//! `Cell::prepare_sleep`, which ends in one. So one of the two sees the other.

mod cell;
mod client_end;
mod free_list;
mod geometry;
#[cfg_attr(loom, path = "model_memory.rs")]
mod memory;
#[cfg(not(loom))]
mod open;
mod padded;
mod ring;
mod server_end;
#[cfg(test)]
mod tests;

/// Both sides of a lane with so many cells, for the models of rooms above.
#[cfg(all(test, loom))]
pub(crate) fn test_lane(cells: u32) -> (ServerEnd, ClientEnd) {
    let geometry = Geometry::checked(cells, 128).expect("a size that a lane can have");
    let lane = memory::LaneMemory::new(geometry);
    (ServerEnd::new(lane.clone()), ClientEnd::new(lane))
}

pub use cell::{CHAIN, CellNo, Chain, LEVELS, REGIONS, ReplyHeader, RequestHeader};
pub use client_end::{ClientEnd, IncomingReply};
pub use geometry::Geometry;
pub use server_end::{Incoming, IncomingRequest, ServerEnd};
