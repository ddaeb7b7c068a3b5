//! Rules by which an address space ranks below its level: its share of CPU time, and feedback.
//!
//! Pure functions on words and times, and the texts of settings. Uses nothing else of the crate;
//! `board` stores the words, `member` applies the rules where CPU time is charged.

mod duration_text;
pub mod feedback;
pub mod share;
