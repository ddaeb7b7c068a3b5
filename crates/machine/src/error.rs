use std::fmt;
use std::io;

use crate::answer::Refused;

/// Why something could not be found out, or done. Each says what happened, to what, and what helps.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The address space was asked, and refuses.
    Refused(Refused),
    /// There is no such address space, or it ended while it was asked.
    Gone(String),
    /// Its process is stopped (SIGSTOP, a debugger), so nobody answers.
    Stopped(String),
    /// It did not answer within the time limit.
    Timeout(String),
    /// The run-time directory cannot be used: it is missing, full, read-only, or somebody else's.
    Directory(String),
    /// What came over the control socket was not what was asked for: another version of the library, another program.
    Protocol(String),
    /// A system call failed.
    Io(String, io::Error),
}

impl Error {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(rustix::io::Errno) -> Error {
        let what = what.into();
        move |e| Error::Io(what, e.into())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(refused) => fmt::Display::fmt(refused, f),
            Error::Gone(text)
            | Error::Stopped(text)
            | Error::Timeout(text)
            | Error::Directory(text)
            | Error::Protocol(text) => f.write_str(text),
            Error::Io(what, e) => write!(f, "{what}: {e}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Refused(refused) => Some(refused),
            Error::Io(_, e) => Some(e),
            _ => None,
        }
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        Error::Refused(refused)
    }
}

impl From<Error> for io::Error {
    fn from(error: Error) -> io::Error {
        let kind = match &error {
            Error::Io(_, e) => e.kind(),
            Error::Gone(_) => io::ErrorKind::NotFound,
            Error::Stopped(_) | Error::Timeout(_) => io::ErrorKind::TimedOut,
            Error::Protocol(_) => io::ErrorKind::InvalidData,
            Error::Refused(Refused::Denied(_)) => io::ErrorKind::PermissionDenied,
            Error::Refused(Refused::Unsupported(_)) => io::ErrorKind::Unsupported,
            Error::Refused(Refused::Stale(_)) => io::ErrorKind::NotFound,
            Error::Refused(Refused::Wrong(_) | Refused::Invalid(_)) => io::ErrorKind::InvalidInput,
            Error::Refused(_) | Error::Directory(_) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
