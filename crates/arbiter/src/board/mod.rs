//! The board's file: its layout, its locks, and the records of members that violated the protocol.
//!
//! `file` creates, checks and maps the file; `layout` defines its content. `locks` determine which
//! rows are live, and `clear` reclaims the cores of a dead row. `overrides` and `corruption`
//! identify members that violated the protocol. Any process may have overwritten any word, so every
//! word that is read is checked. Depends on `row`, `slot` and `rules`; `member` and `seat` modify
//! the board, `view` reads it.

mod clear;
pub(crate) mod corruption;
mod error;
mod file;
pub(crate) mod layout;
pub(crate) mod locks;
mod name;
pub mod overrides;
mod truncation;

pub use error::Error;
pub use file::Board;
pub(crate) use file::{is_board, opened};
pub use layout::VERSION;
pub use truncation::recover;
