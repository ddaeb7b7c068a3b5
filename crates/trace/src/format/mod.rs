//! File formats: messages and names, for writers and readers.
//!
//! `perfetto` contains the messages of a trace, `packets` writes those of one run, and `names`
//! contains the names of events, states and arguments. `profile` contains the messages of a
//! profile. `messages` declares all of them. Uses no other part of the crate.

pub(crate) mod messages;
pub mod names;
pub(crate) mod packets;
pub mod perfetto;
pub mod profile;
