//! Hostile images: valid images with damage, from flipped bits to deliberately constructed
//! structures; sparse images whose structures are [`crafted`]; and the operations that are
//! performed on them.

pub mod crafted;
mod damage;
mod exercise;
mod layout;
mod sparse;

pub use damage::damage;
pub use exercise::{Outcome, exercise};
pub use layout::Layout;
pub use sparse::{compress, expand};
