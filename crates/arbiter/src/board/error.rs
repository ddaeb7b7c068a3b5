//! Errors of joining the board. The process continues without arbitration: its priorities apply
//! inside the process only.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Why a board cannot be used.
#[derive(Debug)]
pub enum Error {
    /// The file at the path is not a trustworthy board. Reasons: a symbolic link, another owner,
    /// write permission for other users, not a regular file, or other contents.
    Untrusted(PathBuf, String),
    /// The board was created by another version of Kumihimo.
    Version {
        /// Path of the board.
        path: PathBuf,
        /// Version of the board.
        found: u32,
        /// Version that this program supports.
        known: u32,
    },
    /// The file system has no room for a board.
    Full(PathBuf, io::Error),
    /// All rows are taken, or the address space has more virtual processors than a row has cells.
    NoRoom(PathBuf, String),
    /// The process that creates the board or claims a row did not finish in time; it may be
    /// stopped.
    Busy(PathBuf),
    /// Any other error of the operating system.
    Io(PathBuf, io::Error),
}

impl Error {
    pub(crate) fn io(path: &Path) -> impl Fn(io::Error) -> Error {
        move |e| match e.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Error::Full(path.to_owned(), e),
            _ => Error::Io(path.to_owned(), e),
        }
    }

    pub(crate) fn untrusted(path: &Path, what: impl Into<String>) -> Error {
        Error::Untrusted(path.to_owned(), what.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const OR_ELSE: &str = "or set KUMI_ARBITER to another path or to none";
        match self {
            Error::Untrusted(path, what) => {
                write!(f, "board {} is not used: {what}: remove it, {OR_ELSE}", path.display())
            }
            Error::Version { path, found, known } => write!(
                f,
                "board {} has version {found}, this program supports version {known}: end the programs that use it and remove it, {OR_ELSE}",
                path.display()
            ),
            Error::Full(path, e) => {
                write!(
                    f,
                    "board {}: no space on its file system ({e}): free some space, {OR_ELSE}",
                    path.display()
                )
            }
            Error::NoRoom(path, what) => {
                write!(f, "board {}: {what}: use fewer, {OR_ELSE}", path.display())
            }
            Error::Busy(path) => write!(
                f,
                "board {}: another process holds its lock and may be stopped: continue or end that process, {OR_ELSE}",
                path.display()
            ),
            Error::Io(path, e) => write!(f, "board {}: {e}", path.display()),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Full(_, e) | Error::Io(_, e) => Some(e),
            _ => None,
        }
    }
}
