//! The board's file: its layout, locks, and the traces of members that are gone.
//!
//! `file` makes, checks and maps it; `layout` is what stands in it; `locks` are the liveness of its
//! rows; `clear` takes back the cores of a dead row; `overrides` and `corruption` name members that
//! violated the protocol. Every word may have been overwritten by any process: nothing here trusts
//! one. Uses `row`, `slot` and `rules`; `member` and `seat` act on it, `view` reads it.

mod clear;
pub(crate) mod corruption;
mod error;
mod file;
pub(crate) mod layout;
pub(crate) mod locks;
mod name;
pub mod overrides;

pub use error::Error;
pub use file::Board;
pub(crate) use file::{Map, is_board, opened};
pub use layout::VERSION;
