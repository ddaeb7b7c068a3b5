//! Directories.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};

use kumihimo_runtime::park::sleeps_are_told;

use super::call::call;

/// Entries fetched in one `blocking`. The C library buffers about a hundred anyway.
const AT_ONCE: usize = 128;

/// Iterator over the entries of a directory, as [`std::fs::ReadDir`]; made by
/// [`read_dir`](super::read_dir).
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
            // Without `blocking`, fetching several at once saves nothing.
            let n = if sleeps_are_told() { 1 } else { AT_ONCE };
            self.fetched = call(|| Ok(inner.take(n).collect())).unwrap_or_default();
        }
        self.fetched.pop_front().map(|entry| entry.map(DirEntry))
    }
}

/// An entry of a directory, as [`std::fs::DirEntry`]. It implements
/// [`std::os::unix::fs::DirEntryExt`].
#[derive(Debug)]
pub struct DirEntry(std::fs::DirEntry);

impl DirEntry {
    /// The path: the directory as given to `read_dir`, and the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Metadata of the entry, without following a link.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        call(|| self.0.metadata())
    }

    /// Type of the entry, without following a link. Most file systems return it with the listing.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn file_type(&self) -> io::Result<FileType> {
        call(|| self.0.file_type())
    }

    /// The name in the directory.
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

/// Options for creating a directory, as [`std::fs::DirBuilder`]. It implements
/// [`std::os::unix::fs::DirBuilderExt`].
#[derive(Debug)]
pub struct DirBuilder(std::fs::DirBuilder);

impl DirBuilder {
    /// Options for one directory, with all permissions that the umask leaves.
    #[allow(clippy::new_without_default)]
    #[must_use]
    pub fn new() -> DirBuilder {
        DirBuilder(std::fs::DirBuilder::new())
    }

    /// Sets whether missing parents are created too; an existing directory is then no error.
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.0.recursive(recursive);
        self
    }

    /// Creates the directory.
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
