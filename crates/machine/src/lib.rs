//! Every microprocess of the machine, seen and steered from outside (P0, section 5).
//!
//! An address space knows its own microprocesses; there is no table of them all. The first half of
//! an id finds the address space, in a directory of the user's ([`directory`]); the second half is
//! resolved inside it, by the thread that answers at its control socket ([`space`], [`answer`]).
//! There is no daemon: an address space takes a number when it joins and gives it back by ending,
//! however it ends.
//!
//! It lies below the runtime, which joins with the first microprocess of a process and answers
//! through [`answer::Answer`]. To look and steer:
//!
//! ```
//! use kumihimo_machine::Machine;
//!
//! # fn main() -> Result<(), kumihimo_machine::Error> {
//! # let name = format!("kumihimo-machine-doc-{}", std::process::id());
//! # let folder = std::env::temp_dir().join(name);
//! # kumihimo_machine::directory::Directory::own(&folder)?;
//! # let mine = || Machine::at(&folder);
//! # /*
//! let machine = Machine::mine()?;
//! # */
//! # let machine = mine()?;
//! for mut space in machine.spaces()? {
//!     for one in space.microprocesses()? {
//!         println!("{} {} {}", one.id, one.name.as_deref().unwrap_or("-"), one.state);
//!     }
//! }
//! assert!(machine.neighbour(1).is_err(), "nobody has joined");
//! # std::fs::remove_dir_all(&folder).expect("ours");
//! # Ok(())
//! # }
//! ```
//!
//! [`client`]: the asking side. [`space`]: a number, and the control socket. [`answer`]: questions,
//! and the answering side. [`directory`]: where numbers and sockets are. [`gates`]: where gates are
//! found by name. [`descriptors`]: what a fork's child has to close. [`protocol`]: lines of JSON.
#![forbid(unsafe_code)]

pub mod answer;
pub mod client;
mod connection;
pub mod descriptors;
pub mod directory;
mod ear;
mod error;
pub mod gates;
pub mod protocol;
mod serve;
mod socket;
pub mod space;

pub use client::{Error, Machine, Neighbour};
