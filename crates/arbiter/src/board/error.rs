//! What can keep an address space from a board. It then goes on without one: its priorities hold
//! inside it, and not against others.

use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Why a board is not used.
#[derive(Debug)]
pub enum Error {
    /// What stands at the path is not a board that may be trusted: a symbolic link, another user's,
    /// writable by others, no file, or of other contents.
    Untrusted(PathBuf, String),
    /// A board of another version of Kumihimo.
    Version {
        /// Where it is.
        path: PathBuf,
        /// The version that it has.
        found: u32,
        /// The version that this program knows.
        known: u32,
    },
    /// The file system has no room for a board.
    Full(PathBuf, io::Error),
    /// All rows are taken, or the address space has more virtual processors than a row has cells.
    NoRoom(PathBuf, String),
    /// The process that makes the board or claims a row did not finish in time: it is stopped,
    /// perhaps.
    Busy(PathBuf),
    /// Anything else that the system refused.
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
                write!(f, "board {}: {what}, and is not used: remove it, {OR_ELSE}", path.display())
            }
            Error::Version { path, found, known } => write!(
                f,
                "board {} is of version {found}, this program knows version {known}: end the programs that use it and remove it, {OR_ELSE}",
                path.display()
            ),
            Error::Full(path, e) => {
                write!(
                    f,
                    "board {}: no room in its file system ({e}): make room, {OR_ELSE}",
                    path.display()
                )
            }
            Error::NoRoom(path, what) => {
                write!(f, "board {}: {what}: use fewer, {OR_ELSE}", path.display())
            }
            Error::Busy(path) => write!(
                f,
                "board {}: another process keeps it locked; it is stopped, perhaps: continue or end it, {OR_ELSE}",
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
