//! Run queues of virtual processors (VPs).
//!
//! A [`Set`] owns the queues of all VPs, in the design [`Design::Ring`] (the papers' P4: no lock,
//! no read-modify-write on the way of a context switch). With the feature `lab` there are two more
//! for comparison, chosen at run time: `locked` (P4's conventional design) and `steal` (Chase-Lev
//! deques). What the owner of a queue does goes through an [`Owner`]; everybody else uses the
//! `Set`.
//!
//! # The course of a context switch
//! ```text
//! for item in owner.take_injected() { owner.push(item, ..) }  // only if !injector_is_empty()
//! wake(owner.exchange());                                     // takes the neighbour's surplus
//! let next = owner.pop();                                     // on yield: pop_at_least(level)
//! ... switch; then, on the other side, for the one that was left:
//! owner.push(old, place, Origin::Yield)
//! wake(owner.surplus(someone_idle));                          // after the push
//! ```
//! and of an idle VP:
//! ```text
//! loop { if injected or owner.exchange().. or owner.pull() { break }  spin a little }
//! say "I sleep" (any store);  if owner.has_visible_work() { take it back } else { sleep }
//! ```
//! `exchange` and `surplus` return a [`Taker`] when something became visible to other VPs; the
//! caller then reads which ones sleep and wakes one. They end in a sequentially consistent fence in
//! that case, `has_visible_work` begins with one, so a VP that goes to sleep and one that gives
//! work away never miss each other. (In `steal` a push makes work visible without a fence: an idle
//! VP may miss it until the owner's next `surplus`.)
//!
//! # Items
//! are pointers to records that carry their own [`Links`]; nothing is allocated when one is queued
//! (except that heaps of keyed levels and deques grow). An item is in one queue at a time and has
//! one holder at a time.
//!
//! # Capacity
//! How much a VP keeps before it gives away is [`Capacity`]. It is looked at when the queue
//! outgrows the limit computed last, and at every 16th exchange (more rarely with more than 16
//! VPs).
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
