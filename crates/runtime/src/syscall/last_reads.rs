//! Which reads follow one another in a file, though their microprocesses do not know of each other:
//! those are worth a batch, in which they become one.
//!
//! Kept per virtual processor, where batches are made, and not with the file: a word that every
//! read of a shared file writes would be fetched from the other cores each time.

use std::cell::Cell;
use std::os::fd::RawFd;

use crate::microprocess::record::Mp;

/// Files whose last read is remembered, by the low bits of their descriptors.
const FILES: usize = 8;

#[derive(Clone, Copy)]
struct Last {
    fd: RawFd,
    /// Where it ended.
    to: u64,
    by: *const Mp,
}

/// Owner only. Hints: a descriptor may have been closed since, and its number be another file's.
pub(crate) struct LastReads([Cell<Last>; FILES]);

impl LastReads {
    pub(crate) fn new() -> LastReads {
        LastReads([const { Cell::new(Last { fd: -1, to: 0, by: std::ptr::null() }) }; FILES])
    }

    /// Notes a read, and says whether it begins where that of another microprocess has ended.
    pub(crate) fn note(&self, fd: RawFd, at: u64, len: usize, by: *const Mp) -> bool {
        let place = &self.0[fd as usize % FILES];
        let last = place.replace(Last { fd, to: at.wrapping_add(len as u64), by });
        last.fd == fd && last.to == at && !std::ptr::eq(last.by, by)
    }
}

#[cfg(test)]
mod tests;
