//! Recording while the program runs: each record is three words in a buffer of fixed size.
//!
//! `clock` provides the time of records, and `record` packs a record into words. `ring` is the
//! buffer between the recording threads and the thread that writes the records out. Uses no other
//! part of the crate.

pub mod clock;
pub mod record;
pub mod ring;
