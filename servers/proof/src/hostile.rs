//! Hostile images: good ones with damage, from flipped bits to structures that a cunning hand made;
//! and everything that is done with one.

mod damage;
mod exercise;
mod layout;
mod sparse;

pub use damage::damage;
pub use exercise::{Outcome, exercise};
pub use layout::Layout;
pub use sparse::{compress, expand};
