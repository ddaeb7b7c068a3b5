//! Run queues of virtual processors (VPs).
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! A [`Set`] owns the queues of all VPs, in the design [`Design::Ring`] (the papers' P4). That
//! design uses no lock, and no read-modify-write on the path of a context switch. The feature `lab`
//! adds two designs for comparison, selected at run time: `locked` (P4's conventional design) and
//! `steal` (Chase-Lev deques). The owner of a queue uses an [`Owner`]; all other threads use the
//! `Set`.
//!
//! # Steps of a context switch
//! ```text
//! for item in owner.take_injected() { owner.push(item, ..) }  // only if !injector_is_empty()
//! wake(owner.exchange());                                     // takes the neighbour's surplus
//! let next = owner.pop();                                     // on yield: pop_at_least(level)
//! ... switch; then, on the new stack, for the previous item:
//! owner.push(old, place, Origin::Yield)
//! wake(owner.surplus(someone_idle));                          // after the push
//! ```
//! Steps of an idle VP:
//! ```text
//! loop { if injected or owner.exchange().. or owner.pull() { break }  spin a little }
//! announce the sleep (any store);  if owner.has_visible_work() { revoke it } else { sleep }
//! ```
//! `exchange` and `surplus` return a [`Taker`] when an item became visible to other VPs. The caller
//! then reads which VPs sleep, and wakes one. In that case both functions end with a sequentially
//! consistent fence, and `has_visible_work` begins with one. A VP that goes to sleep and a VP that
//! gives work away therefore never miss each other. In `steal`, a push makes work visible without a
//! fence: an idle VP may miss it until the owner's next `surplus`.
//!
//! # Items
//! An item is a pointer to a record that contains its own [`Links`], so queueing allocates nothing,
//! except when a heap of a keyed level or a deque grows. An item is in at most one queue, and has
//! at most one holder, at any time.
//!
//! # Capacity
//! [`Capacity`] determines how many items a VP keeps before it gives items away. The limit is
//! evaluated when the queue outgrows the last computed limit, and at every 16th exchange (less
//! often with more than 16 VPs).
#![no_std]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod any_queue;
mod design;
mod loom;
mod node;
mod owner;
mod part;
mod run_queue;
mod set;
#[cfg(all(test, not(loom)))]
mod tests;

pub use any_queue::AnyQueue;
pub use design::capacity::Capacity;
#[cfg(feature = "lab")]
pub use design::locked;
pub use design::ring;
#[cfg(all(feature = "lab", not(loom)))]
pub use design::steal;
pub use node::{LEVELS, Links, Node, Origin, Place};
pub use owner::Owner;
#[cfg(feature = "lab")]
pub use part::deque;
pub use part::injector::Chain;
pub use part::shared_side::Stats;
pub use part::waiver_queue::WAIVER_PLACES;
pub use part::{injector, protect_queue, surplus_slot, waiver_queue};
pub use run_queue::{Design, RunQueue, Taker};
pub use set::{MAX_VPS, Set};
