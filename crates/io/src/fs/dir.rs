//! Directories.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};

use kumihimo_runtime::park::sleeps_are_told;

use super::call::call;

/// Entries fetched in one `blocking`: the C library has some hundred of them ready at a time
/// anyway.
const AT_ONCE: usize = 128;

/// What is in a directory, as [`std::fs::ReadDir`]; made by [`read_dir`](super::read_dir).
#[derive(Debug)]
pub struct ReadDir {
    inner: std::fs::ReadDir,
    fetched: VecDeque<io::Result<std::fs::DirEntry>>,
}

impl ReadDir {
    pub(super) fn new(path: &Path) -> io::Result<ReadDir> {
        Ok(ReadDir { inner: call(|| std::fs::read_dir(path))?, fetched: VecDeque::new() })
    }
}

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    /// A cancellation point.
    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        if self.fetched.is_empty() {
            let inner = &mut self.inner;
            // Where nothing has to be said before, one is as good as many.
            let n = if sleeps_are_told() { 1 } else { AT_ONCE };
            self.fetched = call(|| Ok(inner.take(n).collect())).unwrap_or_default();
        }
        self.fetched.pop_front().map(|entry| entry.map(DirEntry))
    }
}

/// One of a directory's entries, as [`std::fs::DirEntry`]. [`std::os::unix::fs::DirEntryExt`] is
/// implemented for it.
#[derive(Debug)]
pub struct DirEntry(std::fs::DirEntry);

impl DirEntry {
    /// The directory's path, as it was given, and the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// What the file system knows of it; a link itself is looked at.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        call(|| self.0.metadata())
    }

    /// What it is; a link is a link. Most file systems have told already.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn file_type(&self) -> io::Result<FileType> {
        call(|| self.0.file_type())
    }

    /// Its name in the directory.
    #[must_use]
    pub fn file_name(&self) -> OsString {
        self.0.file_name()
    }
}

impl DirEntryExt for DirEntry {
    fn ino(&self) -> u64 {
        self.0.ino()
    }
}

/// How a directory is made, as [`std::fs::DirBuilder`]. [`std::os::unix::fs::DirBuilderExt`] is
/// implemented for it.
#[derive(Debug)]
pub struct DirBuilder(std::fs::DirBuilder);

impl DirBuilder {
    /// One directory, with the permissions that the process's mask leaves.
    #[allow(clippy::new_without_default)]
    #[must_use]
    pub fn new() -> DirBuilder {
        DirBuilder(std::fs::DirBuilder::new())
    }

    /// Whether those above it are made, too; then one that exists is no error.
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.0.recursive(recursive);
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// As mkdir(2).
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        call(|| self.0.create(path))
    }
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.0.mode(mode);
        self
    }
}
