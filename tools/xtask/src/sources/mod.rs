//! Checks and counts over the text of the sources: language, direction of imports, lines that touch
//! locking.

pub mod layers;
pub mod locking;
pub mod prose;
mod seam;
