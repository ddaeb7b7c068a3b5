//! Unix extensions: `std::os::unix::fs`.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use super::call::call;

pub use std::os::unix::fs::{
    DirBuilderExt, DirEntryExt, FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt,
};

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
/// fs::create_dir("v2")?;
/// fs::unix::symlink("v2", "current")?;
/// fs::write("current/notes.txt", "text")?;
/// assert_eq!(fs::read_to_string("v2/notes.txt")?, "text");
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    call(|| std::os::unix::fs::symlink(original, link))
}

/// Changes owner and group, following links. Blocks the microprocess and its kernel thread until
/// the call returns; other microprocesses continue.
///
/// # Errors
/// As chown(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
/// use kumihimo::fs::unix::MetadataExt;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::write("notes.txt", "")?;
/// let group = fs::metadata("notes.txt")?.gid();
/// // `None` leaves the owner as it is. Another owner takes a privilege.
/// fs::unix::chown("notes.txt", None, Some(group))?;
/// assert_eq!(fs::metadata("notes.txt")?.gid(), group);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn chown<P: AsRef<Path>>(path: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    call(|| std::os::unix::fs::chown(path, uid, gid))
}

/// Changes owner and group of a link itself. Blocks the microprocess and its kernel thread until
/// the call returns; other microprocesses continue.
///
/// # Errors
/// As lchown(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
/// use kumihimo::fs::unix::MetadataExt;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// fs::unix::symlink("nowhere", "link")?;
/// let group = fs::symlink_metadata("link")?.gid();
/// fs::unix::lchown("link", None, Some(group))?;
/// assert!(fs::unix::chown("link", None, Some(group)).is_err(), "it follows the link");
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn lchown<P: AsRef<Path>>(path: P, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    call(|| std::os::unix::fs::lchown(path, uid, gid))
}

/// Changes owner and group of an open file. Blocks the microprocess and its kernel thread until the
/// call returns; other microprocesses continue.
///
/// # Errors
/// As fchown(2).
///
/// # Examples
///
/// ```
/// use kumihimo::fs;
/// use kumihimo::fs::unix::MetadataExt;
///
/// # let dir = std::env::temp_dir().join(format!("kumihimo-{}", std::process::id()));
/// # std::fs::create_dir(&dir).and_then(|()| std::env::set_current_dir(&dir))?;
/// let file = fs::File::create("notes.txt")?;
/// let group = file.metadata()?.gid();
/// fs::unix::fchown(&file, None, Some(group))?;
/// assert_eq!(file.metadata()?.gid(), group);
/// # std::fs::remove_dir_all(dir)?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn fchown<F: AsFd>(file: F, uid: Option<u32>, gid: Option<u32>) -> io::Result<()> {
    call(|| std::os::unix::fs::fchown(file, uid, gid))
}

/// Changes the process's root directory, for all microprocesses. Blocks the microprocess and its
/// kernel thread until the call returns; other microprocesses continue.
///
/// # Errors
/// As chroot(2).
///
/// # Examples
///
/// ```no_run
/// use kumihimo::fs;
///
/// // Needs the capability CAP_SYS_CHROOT.
/// fs::unix::chroot("/srv/sandbox")?;
/// std::env::set_current_dir("/")?;
/// assert!(!fs::exists("/srv/sandbox")?);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn chroot<P: AsRef<Path>>(path: P) -> io::Result<()> {
    call(|| std::os::unix::fs::chroot(path))
}
