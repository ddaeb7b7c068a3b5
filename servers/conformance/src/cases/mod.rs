//! The POSIX cases, by system call.
//!
//! `case.rs` defines a [`Case`]. Three modules declare the cases: `inode` for permissions, owners,
//! times and attributes, `name` for directories, links and paths, `data` for open files. A case
//! records its observations in a [`Trial`](crate::trial::Trial). [`compare()`](crate::compare())
//! runs the cases on two file systems and compares the transcripts.

mod case;
mod data;
mod inode;
mod name;

pub use case::Case;

/// All cases, sorted by topic.
#[must_use]
pub fn all() -> Vec<Case> {
    let mut cases: Vec<Case> = [data::TOPICS, inode::TOPICS, name::TOPICS]
        .into_iter()
        .flatten()
        .flat_map(|topic| topic())
        .collect();
    // A stable sort: the cases of a topic keep their order.
    cases.sort_by(|a, b| a.topic().cmp(b.topic()));
    cases
}
