//! Serves a [`Store`](kumihimo_store::Store) of files through FUSE, in five organisations.
#![forbid(unsafe_code)]

mod crew;
mod environment;
mod interrupts;
pub mod mount;
pub mod mountinfo;
mod negotiate;
mod organisation;
mod per_file;
mod requests;
mod service;
mod threads;
mod uring;
mod wire;

pub use organisation::{Apart, CHORE_EVERY, Chore, Mounted, Organisation, apart};
pub use service::{Answer, Service, Settings};
pub use threads::Threads;
pub use wire::{Message, Reply};
