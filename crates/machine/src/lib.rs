//! Every microprocess of the machine, seen and steered from outside (P0, section 5).
//!
//! An address space knows its own microprocesses; there is no table of them all. The first half of
//! an id finds the address space, in a directory of the user's ([`directory`]); the second half is
//! resolved inside it, by the thread that answers at its control socket ([`space`], [`handler`]).
//! There is no daemon: an address space takes a number when it joins and gives it back by ending,
//! however it ends.
//!
//! It lies below the runtime, which joins with the first microprocess of a process and answers
//! through [`handler::ControlHandler`]. To look and steer:
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
//! Each module uses only those above it:
//!
//! - [`handler`]: requests and answers, and the trait by which the runtime answers.
//! - [`protocol`]: both as lines of JSON.
//! - [`descriptors`]: what a fork's child has to close.
//! - [`directory`]: where numbers and sockets are; names of gates.
//! - [`space`]: a number, and the control socket.
//! - [`client`]: the asking side.
//! - [`gates`]: gates found by name.
#![forbid(unsafe_code)]

pub mod client;
pub mod descriptors;
pub mod directory;
mod error;
pub mod gates;
pub mod handler;
pub mod protocol;
pub mod space;

pub use client::{Error, Machine, Neighbour};
