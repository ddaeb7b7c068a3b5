//! Microprocesses for Linux: user-level threads that cooperate with the kernel.
//!
//! Write plain blocking code, one thread per connection, request or actor, as with `std::thread`; a million of them. Porting a
//! program is changing `use std::thread` to `use kumihimo::thread`.
//!
//! ```
//! use kumihimo::thread;
//! use kumihimo::sync::mpsc;
//!
//! let (sender, receiver) = mpsc::channel();
//! for i in 0..1000u64 {
//!     let sender = sender.clone();
//!     thread::spawn(move || sender.send(i).unwrap());
//! }
//! drop(sender);
//! assert_eq!(receiver.iter().sum::<u64>(), 499_500);
//! ```
//!
//! # What blocks what
//! Everything in [`sync`], [`net`], [`fs`], [`io`], [`process`], [`signal`] and [`thread`] blocks the calling *microprocess*; its virtual processor goes on with
//! the others. Called from a kernel thread that is no microprocess (`main`, `std::thread::spawn`), it blocks that kernel thread; both kinds mix freely. What is
//! not Kumihimo's (std's locks, C libraries) blocks the kernel thread: wrap it in [`thread::blocking`].
//!
//! # Where things are
//! [`thread`]: spawning, scopes, sleeping, priorities, cancellation. [`sync`]: locks, channels, messages. [`net`]: sockets. [`future`]: async crates.
//! [`fs`], [`io`], [`process`], [`signal`]: files, standard streams and pipes, child processes, signals.
//! [`runtime`]: settings, metrics, the end. [`policy`]: scheduling policies.
#![forbid(unsafe_code)]

pub mod future;

pub use kumihimo_io::{fs, io, net, process, signal};
pub use kumihimo_sync as sync;

/// Microprocesses: `std::thread`, and what goes beyond it.
pub mod thread {
    pub use kumihimo_policy::{Priority, PriorityError};
    pub use kumihimo_runtime::cancel::{
        Cancelled, deadline, masked as without_cancellation, point as cancellation_point, requested as cancel_requested,
    };
    pub use kumihimo_runtime::thread::*;
}

/// The runtime itself: settings, metrics, start and end.
pub mod runtime {
    pub use kumihimo_runtime::NoEvents;
    pub use kumihimo_runtime::runtime::*;
}

/// Scheduling policies: where a runnable microprocess is placed.
pub mod policy {
    pub use kumihimo_policy::*;
}
