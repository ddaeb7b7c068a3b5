use std::fmt;
use std::io;

use rustix::io::Errno;

use crate::handler::Refused;

/// Reason why a request failed. Each message states what happened, to which object, and what to do.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::machine::{Error, Machine};
///
/// let machine = Machine::mine()?;
/// match machine.neighbour(7) {
///     Err(Error::Gone(text)) => assert!(text.starts_with("there is no address space 7")),
///     other => panic!("nothing runs in this directory: {other:?}"),
/// }
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The address space refused the request.
    Refused(Refused),
    /// The address space does not exist, or ended during the request.
    Gone(String),
    /// The process of the address space is stopped (SIGSTOP, a debugger), so it cannot answer.
    Stopped(String),
    /// The address space did not answer within the time limit.
    Timeout(String),
    /// The run-time directory cannot be used: it is missing, full, read-only, or another user's.
    Directory(String),
    /// Another machine is not reachable, so that nothing was sent to it.
    Unreachable(String),
    /// The answer does not follow the protocol: the server is another version of the library, or
    /// another program.
    Protocol(String),
    /// Another living address space serves a gate of this name.
    InUse(String),
    /// A resource, such as descriptors or space, is exhausted.
    Exhausted(String),
    /// An argument is invalid.
    Invalid(String),
    /// A system call failed.
    Io(String, io::Error),
}

impl Error {
    /// Converts the error of a system call on `what`.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::machine::Error;
    /// use std::io;
    ///
    /// let error = Error::io("the log")(io::Error::from_raw_os_error(24)); // EMFILE
    /// assert!(matches!(error, Error::Exhausted(_)));
    /// assert!(error.to_string().contains("raise its limit (ulimit -n)"));
    /// ```
    pub fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Error {
        let what = what.into();
        move |e| {
            let e = e.into();
            match e.raw_os_error().map(Errno::from_raw_os_error) {
                Some(Errno::MFILE) => Error::Exhausted(format!(
                    "{what}: this process has no descriptors left; raise its limit (ulimit -n)"
                )),
                Some(Errno::NFILE) => Error::Exhausted(format!(
                    "{what}: the machine has no descriptors left; raise fs.file-max"
                )),
                _ => Error::Io(what, e),
            }
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Refused(refused) => fmt::Display::fmt(refused, f),
            Error::Gone(text)
            | Error::Stopped(text)
            | Error::Timeout(text)
            | Error::Unreachable(text)
            | Error::Directory(text)
            | Error::InUse(text)
            | Error::Exhausted(text)
            | Error::Invalid(text)
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
            Error::Unreachable(_) | Error::Refused(Refused::Unreachable(_)) => {
                io::ErrorKind::HostUnreachable
            }
            Error::Protocol(_) => io::ErrorKind::InvalidData,
            Error::Refused(Refused::Denied(_)) => io::ErrorKind::PermissionDenied,
            Error::Refused(Refused::Unsupported(_)) => io::ErrorKind::Unsupported,
            Error::Refused(Refused::Stale(_)) => io::ErrorKind::NotFound,
            Error::Refused(Refused::Wrong(_) | Refused::Invalid(_)) | Error::Invalid(_) => {
                io::ErrorKind::InvalidInput
            }
            Error::InUse(_) => io::ErrorKind::AddrInUse,
            Error::Exhausted(_) => io::ErrorKind::StorageFull,
            Error::Refused(_) | Error::Directory(_) => io::ErrorKind::Other,
        };
        io::Error::new(kind, error)
    }
}
