//! Detection of consecutive reads of a file by different microprocesses. Such reads are worth a
//! batch, in which they are merged into one.
//!
//! The state is kept per VP, where batches are made, and not with the file. Every read of a shared
//! file would write a word there, and so move its cache line between the cores each time.

use std::cell::Cell;
use std::os::fd::RawFd;

use crate::microprocess::record::Mp;

/// Number of files whose last read is recorded, by the low bits of their descriptors.
const FILES: usize = 8;

#[derive(Clone, Copy)]
struct Last {
    fd: RawFd,
    /// Offset at which the read ended.
    to: u64,
    by: *const Mp,
}

/// The last reads. Owner only. Hints: a descriptor may have been closed since, and its number
/// reused.
pub(crate) struct LastReads([Cell<Last>; FILES]);

impl LastReads {
    pub(crate) fn new() -> LastReads {
        LastReads([const { Cell::new(Last { fd: -1, to: 0, by: std::ptr::null() }) }; FILES])
    }

    /// Records a read. Returns whether it begins where a read of another microprocess ended.
    pub(crate) fn note(&self, fd: RawFd, at: u64, len: usize, by: *const Mp) -> bool {
        let place = &self.0[fd as usize % FILES];
        let last = place.replace(Last { fd, to: at.wrapping_add(len as u64), by });
        last.fd == fd && last.to == at && !std::ptr::eq(last.by, by)
    }
}

#[cfg(test)]
mod tests;
