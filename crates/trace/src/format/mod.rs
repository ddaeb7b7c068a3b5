//! The file that Perfetto opens: its messages, and the names in it, for the writer and the reader.
//!
//! `perfetto` has the messages, `packets` writes those of one run, `names` is what things are
//! called in the file. Uses nothing else of the crate.

pub mod names;
pub(crate) mod packets;
pub mod perfetto;
