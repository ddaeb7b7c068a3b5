//! Batched system calls (paper P2): requests of several microprocesses that enter the kernel
//! together.
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! This crate does not depend on microprocesses, and nothing in it waits. A [`Batch`] takes
//! [`Call`]s, sorts them ([`order`]) and merges those that can become one request. It passes the
//! requests to a [`Backend`], which executes all of them before it returns. Each call then has the
//! outcome that it would have had alone. A [`Policy`] decides when a batch starts; the runtime
//! manages the waiting microprocesses.
//!
//! A batch is synchronous, as in the paper: no request is in flight when [`Batch::run`] returns.
//! The caller may then reuse the buffers of its call, whatever happens next.
//!
//! Reads that always go to the disk are not batched: they go to the [`DirectReader`].

mod backend;
mod batch;
mod call;
mod costs;
mod counters;
mod direct_reader;
mod op;
pub mod order;
mod policy;
mod request;

pub use backend::{Backend, Plain, Uring, fault, open};
pub use batch::{Batch, alone};
pub use call::{Call, LARGEST};
pub use costs::{Cost, Costs};
pub use counters::{BUCKETS, Counters};
pub use direct_reader::DirectReader;
pub use op::{Address, Class, KINDS, Kind, Message, Op, Outcome};
pub use policy::{BadPolicy, Decision, Policy, Situation};
pub use request::Request;
