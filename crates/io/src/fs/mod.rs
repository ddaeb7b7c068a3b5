//! Files and directories: `std::fs`, with `use std` changed to `use kumihimo`.
//!
//! Differences from std, and properties that all calls here share:
//!
//! - **Blocking**: files on a disk have no readiness. A call that waits for the disk sleeps in the
//!   kernel with its kernel thread; the event source reports that, and the virtual processor moves
//!   to another kernel thread. Without an event source (`off`), reads of cached data are plain
//!   calls, and all others run inside [`thread::blocking`]. Calls that always wait long
//!   (`sync_all`, locks, `copy`, `remove_dir_all`) always run inside it. From a plain std thread
//!   every call blocks that thread, as in std.
//! - **FIFOs, terminals, devices** opened as a [`File`] are waited for by readiness, like sockets:
//!   the deadline of a scope ends the wait with `TimedOut`. Opening a FIFO waits for the other end
//!   as in std; neither deadline nor cancellation ends that wait. Where the kernel has no
//!   nonblocking attempt (FIFOs, terminals), a write transfers at most 4,096 bytes at a time.
//! - **Cancellation**: every call is a cancellation point before it begins, and while it waits
//!   for readiness. The kernel uses a buffer during the call only, so a cancelled call leaves
//!   nothing in flight; a disk operation that has begun is completed. Neither cancellation nor a
//!   signal causes `ErrorKind::Interrupted`: interrupted calls are repeated.
//! - **Closing** is as in std: dropping the last handle closes, which may wait (a network file
//!   system); errors are lost, so `sync_all` first.
//! - `std::path::Path`'s own methods (`exists`, `metadata`) are std's plain calls.
//!
//! Source: the manual pages open(2), preadv2(2), copy_file_range(2), fifo(7).
//!
//! [`thread::blocking`]: kumihimo_runtime::thread::blocking

mod call;
mod copy;
mod dir;
mod file;
pub mod unix;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use call::{call, long_call};

pub use copy::copy;
pub(crate) use copy::{KernelCopy, copy_ranges, send_file};
pub use dir::{DirBuilder, DirEntry, ReadDir};
pub use file::{File, OpenOptions, TryLockError};
pub use std::fs::{FileTimes, FileType, Metadata, Permissions};

/// Reads a whole file. Blocks the microprocess and its kernel thread until the call returns; other
/// microprocesses continue.
///
/// # Errors
/// As open(2) and read(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::write("blob", [1, 2, 3])?;
/// assert_eq!(fs::read("blob")?, [1, 2, 3]);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.read_whole(&mut bytes)?;
    Ok(bytes)
}

/// Reads a whole file as text. Blocks the microprocess and its kernel thread until the call
/// returns; other microprocesses continue.
///
/// # Errors
/// As open(2) and read(2); `InvalidData` if it is not UTF-8.
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::write("notes.txt", "one\ntwo\n")?;
/// assert_eq!(fs::read_to_string("notes.txt")?.lines().count(), 2);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.read_to_string(&mut text)?;
    Ok(text)
}

/// Replaces the contents of a file, or creates it. After an error or a cancellation, the file has a
/// part of `contents`. Blocks the microprocess and its kernel thread until the call returns; other
/// microprocesses continue.
///
/// # Errors
/// As open(2) and write(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::write("count", "1")?;
/// fs::write("count", "2")?; // replaces the contents
/// assert_eq!(fs::read_to_string("count")?, "2");
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    File::create(path)?.write_all(contents.as_ref())
}

/// Metadata of a file, following links. Blocks the microprocess and its kernel thread until the
/// call returns; other microprocesses continue.
///
/// # Errors
/// As stat(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::write("notes.txt", "four")?;
/// let metadata = fs::metadata("notes.txt")?;
/// assert!(metadata.is_file());
/// assert_eq!(metadata.len(), 4);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    call(|| std::fs::metadata(path))
}

/// Metadata of a file or link, without following links. Blocks the microprocess and its kernel
/// thread until the call returns; other microprocesses continue.
///
/// # Errors
/// As lstat(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::unix::symlink("nowhere", "link")?;
/// assert!(fs::symlink_metadata("link")?.is_symlink());
/// assert!(fs::metadata("link").is_err());
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn symlink_metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    call(|| std::fs::symlink_metadata(path))
}

/// Whether the path exists; false for a broken link. Blocks the microprocess and its kernel thread
/// until the call returns; other microprocesses continue.
///
/// # Errors
/// As stat(2), except `NotFound`.
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// assert!(!fs::exists("lock")?);
/// fs::write("lock", "")?;
/// assert!(fs::exists("lock")?);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn exists<P: AsRef<Path>>(path: P) -> io::Result<bool> {
    call(|| std::fs::exists(path))
}

/// The absolute path with all links resolved. Blocks the microprocess and its kernel thread until
/// the call returns; other microprocesses continue.
///
/// # Errors
/// As realpath(3).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::create_dir("logs")?;
/// let path = fs::canonicalize("./logs/../logs")?;
/// assert!(path.is_absolute() && path.ends_with("logs"));
/// # assert_eq!(path, std::env::current_dir()?.join("logs"));
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn canonicalize<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    call(|| std::fs::canonicalize(path))
}

/// Target of a link. Blocks the microprocess and its kernel thread until the call returns; other
/// microprocesses continue.
///
/// # Errors
/// As readlink(2): `InvalidInput` if it is no link.
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::unix::symlink("v2", "current")?;
/// assert_eq!(fs::read_link("current")?.to_str(), Some("v2"));
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_link<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    call(|| std::fs::read_link(path))
}

/// Creates a second name for a file. Blocks the microprocess and its kernel thread until the call
/// returns; other microprocesses continue.
///
/// # Errors
/// As link(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::write("one", "")?;
/// fs::hard_link("one", "two")?;
/// fs::write("two", "shared")?;
/// assert_eq!(fs::read_to_string("one")?, "shared");
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn hard_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    call(|| std::fs::hard_link(original, link))
}

/// Creates a symbolic link. Blocks the microprocess and its kernel thread until the call returns;
/// other microprocesses continue.
///
/// # Errors
/// As symlink(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::write("notes.txt", "text")?;
/// #[allow(deprecated)]
/// fs::soft_link("notes.txt", "link")?;
/// assert_eq!(fs::read_to_string("link")?, "text");
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[deprecated = "as in std: use fs::unix::symlink"]
pub fn soft_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    unix::symlink(original, link)
}

/// Renames a file, replacing `to` if it exists. Blocks the microprocess and its kernel thread until
/// the call returns; other microprocesses continue.
///
/// # Errors
/// As rename(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// // Readers of "settings" see the old contents or the new ones.
/// fs::write("settings", "old")?;
/// fs::write("settings.new", "new")?;
/// fs::rename("settings.new", "settings")?;
/// assert_eq!(fs::read_to_string("settings")?, "new");
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn rename<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    call(|| std::fs::rename(from, to))
}

/// Removes a file or a link. Blocks the microprocess and its kernel thread until the call returns;
/// other microprocesses continue.
///
/// # Errors
/// As unlink(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::write("scratch", "")?;
/// fs::remove_file("scratch")?;
/// assert!(!fs::exists("scratch")?);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    call(|| std::fs::remove_file(path))
}

/// Creates a directory. Blocks the microprocess and its kernel thread until the call returns; other
/// microprocesses continue.
///
/// # Errors
/// As mkdir(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
/// use kumihimo::io::ErrorKind;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::create_dir("logs")?;
/// let error = fs::create_dir("logs").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::AlreadyExists);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().create(path)
}

/// Creates a directory and its missing parents. An existing directory is no error. Blocks the
/// microprocess and its kernel thread until the call returns; other microprocesses continue.
///
/// # Errors
/// As mkdir(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::create_dir_all("a/b/c")?;
/// fs::create_dir_all("a/b/c")?; // no error
/// assert!(fs::metadata("a/b/c")?.is_dir());
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    DirBuilder::new().recursive(true).create(path)
}

/// Removes an empty directory. Blocks the microprocess and its kernel thread until the call
/// returns; other microprocesses continue.
///
/// # Errors
/// As rmdir(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::create_dir_all("a/b")?;
/// assert!(fs::remove_dir("a").is_err(), "it is not empty");
/// fs::remove_dir("a/b")?;
/// fs::remove_dir("a")?;
/// assert!(!fs::exists("a")?);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    call(|| std::fs::remove_dir(path))
}

/// Removes a directory and everything below it; links are removed, not followed. Blocks the
/// microprocess and its kernel thread until the call returns; other microprocesses continue.
///
/// # Errors
/// As std's: the first entry that cannot be removed ends the call.
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::create_dir_all("build/objects")?;
/// fs::write("build/log", "")?;
/// fs::remove_dir_all("build")?;
/// assert!(!fs::exists("build")?);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    long_call(|| std::fs::remove_dir_all(path))
}

/// Iterates over the entries of a directory, in no particular order. Blocks the microprocess and
/// its kernel thread until the call returns; other microprocesses continue.
///
/// # Errors
/// As opendir(3).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::write("a", "")?;
/// fs::write("b", "")?;
/// let entries = fs::read_dir(".")?;
/// let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
/// names.sort();
/// assert_eq!(names, ["a", "b"]);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    ReadDir::new(path.as_ref())
}

/// Changes the permissions of a file, following links. Blocks the microprocess and its kernel
/// thread until the call returns; other microprocesses continue.
///
/// # Errors
/// As chmod(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::write("report", "final")?;
/// let mut permissions = fs::metadata("report")?.permissions();
/// permissions.set_readonly(true);
/// fs::set_permissions("report", permissions)?;
/// assert!(fs::metadata("report")?.permissions().readonly());
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn set_permissions<P: AsRef<Path>>(path: P, permissions: Permissions) -> io::Result<()> {
    call(|| std::fs::set_permissions(path, permissions))
}
