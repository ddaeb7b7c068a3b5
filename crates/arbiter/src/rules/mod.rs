//! Rules by which an address space ranks below its level: its share of CPU time, and feedback.
//!
//! Pure functions on words and times, and their text forms. Depends on no other module of the
//! crate; `board` stores the words, `member` applies the rules when it charges CPU time.

pub mod feedback;
pub mod share;
