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
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::create_dir("sub")?;
/// fs::write("file", "")?;
/// let mut dirs = 0;
/// for entry in fs::read_dir(".")? {
///     dirs += u32::from(entry?.file_type()?.is_dir());
/// }
/// assert_eq!(dirs, 1);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
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

    /// Blocks the microprocess and its kernel thread while the directory is read; other
    /// microprocesses continue. A cancellation point.
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
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::write("data.bin", [0; 100])?;
/// let entry = fs::read_dir(".")?.next().unwrap()?;
/// assert_eq!(entry.file_name(), "data.bin");
/// assert_eq!(entry.metadata()?.len(), 100);
/// assert_eq!(fs::read(entry.path())?, [0; 100]);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct DirEntry(std::fs::DirEntry);

impl DirEntry {
    /// The path: the directory as given to `read_dir`, and the name.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Metadata of the entry, without following a link. Blocks the microprocess and its kernel
    /// thread until the call returns; other microprocesses continue.
    ///
    /// # Errors
    /// As lstat(2).
    pub fn metadata(&self) -> io::Result<Metadata> {
        call(|| self.0.metadata())
    }

    /// Type of the entry, without following a link. Most file systems return it with the listing.
    /// Blocks the microprocess and its kernel thread until the call returns; other microprocesses
    /// continue.
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
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
/// use kumihimo::fs::unix::{DirBuilderExt, MetadataExt};
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::DirBuilder::new().recursive(true).mode(0o700).create("secret/keys")?;
/// assert_eq!(fs::metadata("secret/keys")?.mode() & 0o777, 0o700);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
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

    /// Creates the directory. Blocks the microprocess and its kernel thread until the call returns;
    /// other microprocesses continue.
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
