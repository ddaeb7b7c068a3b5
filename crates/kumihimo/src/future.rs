//! Async crates in blocking code: [`block_on`] drives a future, its waker is an unpark.
//!
//! ```
//! use kumihimo::{future, thread};
//! use std::future::poll_fn;
//! use std::task::Poll;
//!
//! let mut once = false;
//! let answer = thread::spawn(move || {
//!     future::block_on(poll_fn(|context| {
//!         if std::mem::replace(&mut once, true) {
//!             return Poll::Ready(42);
//!         }
//!         let waker = context.waker().clone(); // for another thread
//!         thread::spawn(move || waker.wake());
//!         // The microprocess is parked; its virtual processor goes on with the others.
//!         Poll::Pending
//!     }))
//! });
//! assert_eq!(answer.join().unwrap(), 42);
//! ```
//!
//! There is no executor: a microprocess is what a spawned future is elsewhere. To run several
//! futures at once, spawn a microprocess for each, or join them into one
//! (`futures_lite::future::zip`, `futures::join!`).
//!
//! # What works through it
//! A future becomes ready because its waker is called. Which crates work depends on the caller.
//!
//! - the sender, unlocker or closer: the crate has no reactor: for example: async-channel,
//!   async-lock, async-broadcast, event-listener, futures and futures-lite, flume's async side,
//!   tower's services and those layers that use no clock, `tokio::sync` (without its timeouts) and
//!   tokio's `JoinHandle`; works: as it is: `examples/src/bin/future_channel.rs`.
//! - a kernel thread that the crate starts by itself: for example: async-io, async-net, async-fs,
//!   smol's timers, futures-timer; works: as it is; the I/O is the crate's and not Kumihimo's: its
//!   thread is woken for every wait.
//! - a runtime that has to be there: for example: Tokio's: `tokio::net`, `time`, `fs`, `process`,
//!   `signal`, `spawn`, and all that stands on them: hyper-util, reqwest's async client, tonic,
//!   sqlx, tokio-postgres, the AWS SDK; works: beside it, below:
//!   `examples/src/bin/beside_tokio.rs`.
//! - a runtime whose futures must stay on its thread: for example: monoio, glommio, compio,
//!   `tokio::task::LocalSet`; works: not through it: leave them on kernel threads of their own, and
//!   talk to those through a channel.
//!
//! Of the second and third kind there is often a blocking twin that needs none of this: rustls,
//! tungstenite and httparse take whatever reads and writes, so [`net`](crate::net) as well as
//! `std::net`; ureq and redis a connection of one's own, of some twenty lines.
//!
//! # Beside Tokio
//! Build a `tokio::runtime::Runtime` of one worker or two; these are kernel threads of their own,
//! the kernel shares the cores out. Microprocesses use its handle in one of two ways:
//!
//! - `block_on(tokio.spawn(future))`: the future runs on Tokio's threads, the microprocess waits
//!   for its end. It must be `Send + 'static`.
//! - `let _inside = tokio.enter(); block_on(future)`: the future runs in the microprocess, and
//!   may borrow; Tokio's threads only call the waker. The guard is of the microprocess, as all that
//!   lies in thread-local storage. (Not in lean ones, which have none of their own.)
//!
//! `tokio::runtime::Runtime::block_on` works too, but blocks the kernel thread: a hand-over of the
//! virtual processor each time.
//!
//! The other way round, a call that blocks (everything in [`net`](crate::net),
//! [`sync`](crate::sync), `join`) blocks the kernel thread of Tokio's that makes it, and all
//! futures there: use `tokio::task::spawn_blocking`, or spawn a microprocess and await a
//! `tokio::sync::oneshot` from it.
//!
//! # What blocks, and what ends it
//! See [`block_on`]. A future's own `timeout` needs the clock of its runtime; [`block_on_timeout`]
//! and [`block_on_until`] need none. The deadlock report leaves programs alone in which somebody
//! waits for a future: another runtime's thread may still call the waker.

pub use kumihimo_runtime::future::{block_on, block_on_timeout, block_on_until};
