//! Listing and control of all microprocesses on a machine, from any process (P0, section 5).
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! Each address space holds a table of its own microprocesses; there is no global table. The first
//! half of an ID identifies the address space in the user's run-time directory ([`directory`]). The
//! address space resolves the second half in the thread that serves its control socket ([`space`],
//! [`handler`]). There is no daemon: an address space takes a number when it joins, and the number
//! becomes free when its process ends in any way.
//!
//! This crate is below the runtime. The runtime joins when the process's first microprocess starts,
//! and answers requests through [`handler::ControlHandler`]. To list microprocesses:
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
//! assert!(machine.neighbour(1).is_err(), "no address space has joined");
//! # std::fs::remove_dir_all(&folder).expect("the example created the folder");
//! # Ok(())
//! # }
//! ```
//!
//! Each module uses only those above it:
//!
//! - [`short_id`]: the form of an ID that users type.
//! - [`locks`]: locks with their holders and waiters, and chains of waits.
//! - [`handler`]: requests and answers, and the trait with which the runtime answers.
//! - [`top`]: query and answer of `kumi top`.
//! - [`profile`]: request and answer of `kumi profile`.
//! - [`protocol`]: requests and answers as lines of JSON.
//! - [`socket`]: sockets to peers, and the descriptors that come through them.
//! - [`border`]: other machines: their names, and the requests to the border of this one.
//! - [`directory`]: the run-time directory, with numbers, sockets and gate names.
//! - [`space`]: an address space's number and control socket.
//! - [`client`]: requests to other address spaces.
//! - [`gates`]: gates found by name.
#![forbid(unsafe_code)]

pub mod border;
pub mod client;
pub mod directory;
mod error;
pub mod gates;
pub mod handler;
pub mod locks;
mod microprocess;
pub mod profile;
pub mod protocol;
pub mod short_id;
pub mod socket;
pub mod space;
pub mod top;

pub use client::{Error, Machine, Neighbour};
