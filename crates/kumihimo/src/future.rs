//! Async crates in blocking code: [`block_on`] drives a future, and its waker unparks the thread.
//!
//! Spawn a microprocess where other libraries spawn a future. To run several futures at once, spawn
//! a microprocess for each, or join them into one (`futures_lite::future::zip`, `futures::join!`).
//! The module `futures` (feature `futures`) is for crates that take an executor, streams or timers.
//!
//! # Examples
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
//!         // The microprocess parks; its virtual processor runs others.
//!         Poll::Pending
//!     }))
//! });
//! assert_eq!(answer.join().unwrap(), 42);
//! ```
//!
//! # Supported crates
//! A future makes progress when its waker is called. Support depends on the caller of the waker:
//!
//! - The sender, unlocker or closer, in crates without a reactor: async-channel, async-lock,
//!   async-broadcast, event-listener, futures and futures-lite, flume's async side, tower's
//!   services and its layers without timers, `tokio::sync` (without its timeouts) and tokio's
//!   `JoinHandle`. These work unchanged: see `examples/src/bin/future_channel.rs`.
//! - Kumihimo, for crates that take streams, timers and an executor from their user: hyper, tonic
//!   without its feature `transport`, crates over the traits of `futures-io`. They run on the
//!   runtime's own readiness, by the module `futures`: see `examples/hyper`.
//! - A kernel thread that the crate starts by itself: async-io, async-net, async-fs, smol's timers,
//!   futures-timer. These work unchanged, but their I/O bypasses Kumihimo: the crate's thread is
//!   woken for every wait.
//! - A runtime that must be running: Tokio's `tokio::net`, `time`, `fs`, `process`, `signal`,
//!   `spawn`, and crates based on them (hyper-util, reqwest's async client, tonic's `transport`,
//!   sqlx, tokio-postgres, the AWS SDK). These work beside Tokio, as described below: see
//!   `examples/src/bin/beside_tokio.rs` and `examples/sqlx`.
//! - A runtime whose futures must stay on its thread: monoio, glommio, compio,
//!   `tokio::task::LocalSet`. These do not work through `block_on`: run them on kernel threads of
//!   their own, and communicate through a channel.
//!
//! For crates of the last three kinds there is often a blocking counterpart that needs no
//! adapter. rustls, tungstenite and httparse accept any reader and writer, so [`net`](crate::net)
//! as well as `std::net`. ureq and redis accept a custom connection type of about twenty lines.
//!
//! # Beside Tokio
//! Build a `tokio::runtime::Runtime` with one or two workers. They are kernel threads of their own,
//! and the kernel divides the cores between them and the virtual processors. Microprocesses use the
//! runtime's handle in one of two ways:
//!
//! - `block_on(tokio.spawn(future))`: the future runs on Tokio's threads, and the microprocess
//!   waits for it. It must be `Send + 'static`.
//! - `let _inside = tokio.enter(); block_on(future)`: the future runs in the microprocess and may
//!   borrow; Tokio's threads only call the waker. The guard belongs to the microprocess, like all
//!   thread-local storage. (Lean microprocesses have no thread-local storage of their own.)
//!
//! `tokio::runtime::Runtime::block_on` works too, but blocks the kernel thread, which costs a
//! hand-off of the virtual processor each time.
//!
//! In the other direction, a blocking call of Kumihimo ([`net`](crate::net), [`sync`](crate::sync),
//! `join`) on one of Tokio's threads blocks that kernel thread and all futures on it. Use
//! `tokio::task::spawn_blocking`, or spawn a microprocess and await a `tokio::sync::oneshot` from
//! it.
//!
//! # Timeouts and deadlocks
//! [`block_on`] describes cancellation and deadlines. A future's own `timeout` needs the clock of
//! its runtime; [`block_on_timeout`] and [`block_on_until`] need none. The deadlock report ignores
//! programs in which a thread waits for a future: another runtime's thread may still call the
//! waker.

#[doc(inline)]
pub use kumihimo_runtime::future::{block_on, block_on_timeout, block_on_until};
