//! Checks and counts over the text of the sources: language, direction of imports, lines that touch
//! locking.

pub mod layers;
#[cfg(test)]
mod lock_files;
pub mod locking;
pub mod prose;
mod seam;
