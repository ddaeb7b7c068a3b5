//! Hand-off: the protocol by which a virtual processor moves from one kernel thread to another.
//!
//! - [`slot`]: a kernel thread's record, with the claim that takes its VP over.
//! - [`thread_state`]: the events and the thread states that a slot holds.
//! - [`page`]: the shared page, an array of slots.
//! - [`carriers`]: the owner of each VP, by name.
//! - [`park_word`]: whether a VP that runs nothing has no kernel thread.
//! - [`return_queue`]: returning threads that wait for a VP.
//! - [`barrier`]: the asymmetric memory barrier of a claim.
//!
//! Carriers write slots; spares, event sources and the kernel read and claim them. The room uses
//! only `loom` and `report`. Its models run under loom (`tests/loom.rs` here and in the modules).

pub mod barrier;
pub mod carriers;
pub mod page;
pub mod park_word;
pub mod return_queue;
pub mod slot;
pub mod thread_state;
#[cfg(all(test, loom))]
mod tests {
    mod loom;
}
