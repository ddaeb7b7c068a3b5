//! Operations on resources, and their errors.

use std::fmt;
use std::io;

use crate::id::{Id, Kind};
use crate::names::NameError;

/// Operation on a resource: a column of the table.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Error, Kind, Operation, Region, table};
///
/// let region = Region::new(4096)?;
/// let error = table().write(region.id(), b"text").unwrap_err();
/// assert!(matches!(error, Error::Unsupported(Kind::REGION, Operation::Write)));
/// assert_eq!(error.to_string(), "kind region does not support operation write");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Creates a resource, or finds an available one.
    Open,
    /// Ends a resource.
    Close,
    /// Reads the content or the state of a resource.
    Read,
    /// Writes to a resource.
    Write,
    /// Any other action on a resource.
    Control,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Operation::Open => "open",
            Operation::Close => "close",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Control => "control",
        })
    }
}

/// Error of an operation on a resource.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Error, Region, table};
///
/// let region = Region::new(4096)?;
/// let id = region.id();
/// drop(region);
/// assert!(matches!(table().read(id, &mut Vec::new()), Err(Error::Stale(stale)) if stale == id));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The kind does not support the operation.
    Unsupported(Kind, Operation),
    /// This address space does not have the kind.
    NoKind(Kind),
    /// The id belongs to another address space.
    Elsewhere(Id),
    /// The resource has ended, or never existed.
    Stale(Id),
    /// All slots of the kind are in use.
    Full(Kind),
    /// The request is invalid. Holds the reason.
    Invalid(String),
    /// Error of the name tree.
    Name(NameError),
    /// Error of the operating system.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unsupported(kind, operation) => {
                write!(f, "kind {kind} does not support operation {operation}")
            }
            Error::NoKind(kind) => write!(f, "this address space has no resources of kind {kind}"),
            Error::Elsewhere(id) => {
                write!(
                    f,
                    "{id} is in another address space: send the request there (kumihimo::machine, kumi)"
                )
            }
            Error::Stale(id) => write!(f, "{id} has ended, or never existed"),
            Error::Full(kind) => {
                write!(f, "all {} slots of kind {kind} are in use: end some", crate::id::SLOTS)
            }
            Error::Invalid(why) => f.write_str(why),
            Error::Name(e) => e.fmt(f),
            Error::Io(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Name(e) => Some(e),
            Error::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<NameError> for Error {
    fn from(e: NameError) -> Error {
        Error::Name(e)
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        Error::Io(e)
    }
}
