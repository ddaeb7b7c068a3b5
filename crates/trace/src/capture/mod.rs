//! What happens while the program runs: a record is three words in a buffer of fixed size.
//!
//! `clock` gives the time on records, `record` packs one into words, `ring` is the buffer between
//! the recording threads and the one that writes them out. Uses nothing else of the crate.

pub mod clock;
pub mod record;
pub mod ring;
