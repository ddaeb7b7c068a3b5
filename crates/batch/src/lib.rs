//! Wrapped system calls (paper P2): requests of several microprocesses that enter the kernel
//! together.
//!
//! Nothing here depends on microprocesses, and nothing waits: a [`Batch`] takes [`Call`]s, puts
//! them in [`order`], makes one request of those that can be merged, and gives the requests to a
//! [`Backend`], which makes all of them before it returns. Each call then has the outcome that it
//! would have had alone. When a batch starts is a [`Policy`]'s affair; its waiters are the
//! runtime's.
//!
//! The paper's batch is synchronous and so is this one: no request is under way when [`Batch::run`]
//! returns, so the buffers of a call are its caller's again, whatever happens to the caller next.
//!
//! Reads that go to the disk in any case have no place in a batch: those go to the
//! [`DirectReader`].

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
