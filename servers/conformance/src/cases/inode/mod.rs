//! Cases about inodes: permissions, owners, times and attributes.
//!
//! Each file covers one system call or property and exports its cases as `all`. A case receives the
//! [`Trial`](crate::trial::Trial) of a fresh directory and records its observations there. Cases
//! use only the trial, never each other.

mod access;
mod acl;
mod chmod;
mod chown;
mod setid;
mod stat;
mod times;
mod users;
mod xattr;

use crate::cases::case::Topic;

/// The topics of this module.
pub(super) const TOPICS: &[Topic] = &[
    access::all,
    acl::all,
    chmod::all,
    chown::all,
    setid::all,
    stat::all,
    times::all,
    users::all,
    xattr::all,
];
