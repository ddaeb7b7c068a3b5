//! Errors of the system, of the machine's directory and of the runtime, as errors of a gate.

use kumihimo_machine::Error as Unreachable;
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};

impl From<Unreachable> for Error {
    fn from(error: Unreachable) -> Error {
        let kind = match &error {
            Unreachable::Refused(_) => ErrorKind::NotPermitted,
            Unreachable::Gone(_) => ErrorKind::Gone,
            Unreachable::Stopped(_) | Unreachable::Timeout(_) => ErrorKind::TimedOut,
            Unreachable::InUse(_) => ErrorKind::InUse,
            Unreachable::Exhausted(_) => ErrorKind::Exhausted,
            Unreachable::Invalid(_) => ErrorKind::Invalid,
            Unreachable::Protocol(_) => ErrorKind::Malformed,
            Unreachable::Io(_, e) => of_io(e.raw_os_error()),
            _ => ErrorKind::Io,
        };
        Error::new(kind, error.to_string())
    }
}

impl Error {
    /// Fails where the architecture has no gates.
    pub(crate) fn unless_supported() -> Result<(), Error> {
        kumihimo_runtime::supports("gates")
            .map_err(|e| Error::new(ErrorKind::Unsupported, e.to_string()))
    }

    /// An error of the operating system during `what`.
    pub(crate) fn of_system(what: &str, e: Errno) -> Error {
        Unreachable::io(what)(e).into()
    }
}

/// The kind for an error of the system.
fn of_io(errno: Option<i32>) -> ErrorKind {
    match errno {
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM | libc::ENOBUFS | libc::ENOSPC) => {
            ErrorKind::Exhausted
        }
        Some(libc::EACCES | libc::EPERM) => ErrorKind::NotPermitted,
        _ => ErrorKind::Io,
    }
}
