//! Files in memory, for code that reads files.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{MemfdFlags, memfd_create};

/// A file with these contents, at its beginning.
pub(crate) fn file(bytes: &[u8]) -> File {
    let fd: OwnedFd =
        memfd_create(c"fuzzed", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).expect("a memfd");
    let file = File::from(fd);
    file.write_all_at(bytes, 0).expect("memory takes the bytes");
    file
}
