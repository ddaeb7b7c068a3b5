//! The file format for Perfetto: its messages and the names in it, for the writer and the reader.
//!
//! `perfetto` contains the messages, `packets` writes those of one run, and `names` contains the
//! names of events, states and arguments. Uses no other part of the crate.

pub mod names;
pub(crate) mod packets;
pub mod perfetto;
