//! Rules by which an address space ranks below its level: its share of CPU time, and feedback.
//!
//! Pure functions on words and times, and their texts. Uses nothing else of the crate;
//! `board` stores the words, `member` applies the rules where CPU time is charged.

pub mod feedback;
pub mod share;
