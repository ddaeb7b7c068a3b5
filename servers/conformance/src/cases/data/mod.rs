//! Cases about open files and their data.
//!
//! Each file covers one system call or property and exports its cases as `all`. A case receives the
//! [`Trial`](crate::trial::Trial) of a fresh directory and records its observations there. Cases
//! use only the trial, never each other.

mod locks;
mod open;
mod ranges;
mod truncate;
mod write;

use crate::cases::case::Topic;

/// The topics of this module.
pub(super) const TOPICS: &[Topic] =
    &[locks::all, open::all, ranges::all, truncate::all, write::all];
