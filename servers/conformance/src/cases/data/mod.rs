//! Cases about open files and their data.
//!
//! Each file covers one system call or property and exports `all`, its cases. A case receives the
//! [`Trial`](crate::trial::Trial) of a fresh directory, and writes its observations there. Cases
//! use the trial only, and no case uses another.

mod locks;
mod open;
mod ranges;
mod truncate;
mod write;

use crate::cases::case::Topic;

/// The topics of this room.
pub(super) const TOPICS: &[Topic] =
    &[locks::all, open::all, ranges::all, truncate::all, write::all];
