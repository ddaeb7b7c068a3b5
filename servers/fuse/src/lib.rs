//! Serves a [`Store`](kumihimo_store::Store) of files through FUSE, in one of five organisations.
#![forbid(unsafe_code)]

mod chore;
mod environment;
mod intake;
pub mod mount;
mod organisation;
mod protocol;
mod threads;

pub use chore::{CHORE_EVERY, Chore};
pub use intake::Mounted;
pub use mount::mountinfo;
pub use organisation::{Apart, Organisation, apart};
pub use protocol::service::{Answer, Service, Settings};
pub use protocol::wire::{Message, Reply};
pub use threads::Threads;
