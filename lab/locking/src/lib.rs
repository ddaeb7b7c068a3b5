//! Counts source lines that touch locking, like table 1 of the paper on localised locks (P3).
//!
//! A line touches locking if it acquires or releases a lock, performs an atomic read-modify-write
//! or issues a fence. Comments, blank lines and tests are excluded.
//!
//! - [`Table`] holds the counts by crate, the sums, and the paper's own rows.
//! - [`Scaling`] relates the counts to measured run times, as table 3 of the paper does.

mod pattern;
mod scaling;
mod source;
mod table;

pub use pattern::touches_locking;
pub use scaling::{Load, Scaling};
pub use source::Lines;
pub use table::{PAPER, Row, Table};

use std::path::PathBuf;

/// Root of the source tree that this crate was built from; `None` if the tree has moved.
#[must_use]
pub fn sources() -> Option<PathBuf> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2)?.to_path_buf();
    root.join("crates").is_dir().then_some(root)
}
