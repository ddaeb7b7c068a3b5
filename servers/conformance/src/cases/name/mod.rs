//! Cases about names: directories, links, paths and renames.
//!
//! Each file covers one system call or property and exports its cases as `all`. A case receives the
//! [`Trial`](crate::trial::Trial) of a fresh directory and records its observations there. Cases
//! use only the trial, never each other.

mod directories;
mod link;
mod listing;
mod names;
mod paths;
mod rename;
mod special;
mod symlink;
mod unlink;

use crate::cases::case::Topic;

/// The topics of this module.
pub(super) const TOPICS: &[Topic] = &[
    directories::all,
    link::all,
    listing::all,
    names::all,
    paths::all,
    rename::all,
    special::all,
    symlink::all,
    unlink::all,
];
