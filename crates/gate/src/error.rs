//! Errors of gates.

#[cfg(not(loom))]
mod system;

use std::fmt;

/// An error of a gate: what happened, to which gate, and what to do.
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::gate::{Error, ErrorKind, Gate, Options};
///
/// let _serving = Gate::serve_with("parse", &Options::new(), |text: String, _context| {
///     text.parse::<u32>().map_err(|e| Error::new(ErrorKind::Invalid, e.to_string()))
/// })?;
///
/// let parse = Gate::<String, u32>::connect("parse")?;
/// let error = parse.call(&"ten".to_owned()).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert!(error.to_string().contains("invalid digit"));
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

/// The kind of an [`Error`].
///
/// # Examples
///
/// ```
/// # let folder = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
/// # // SAFETY: no other thread of this program runs yet.
/// # unsafe { std::env::set_var("KUMI_DIR", &folder) };
/// use kumihimo::gate::{ErrorKind, Gate};
///
/// match Gate::<u32, u32>::connect("nobody-serves-this") {
///     Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
///     Ok(_) => unreachable!("the directory is empty"),
/// }
/// let _serving = Gate::serve("square", |n: u32| n * n)?;
/// let error = Gate::serve("square", |n: u32| n * n).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InUse);
/// # std::fs::remove_dir_all(&folder).ok();
/// # Ok::<(), kumihimo::gate::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// No process serves a gate of this name.
    NotFound,
    /// A gate of this name is served already, by a process that lives.
    InUse,
    /// This user has no access.
    NotPermitted,
    /// The other side speaks another version of the protocol, or serves other types.
    Version,
    /// The other side has ended or closed the gate. A request that was under way may or may not
    /// have been carried out: at most once.
    Gone,
    /// The deadline has passed. The request may still be carried out.
    TimedOut,
    /// The caller was cancelled.
    Cancelled,
    /// The request or the reply is larger than the gate takes.
    TooLarge,
    /// A peer violates the protocol, or a value is not of the type expected.
    Malformed,
    /// The handler panicked.
    Panicked,
    /// The call could never end: it comes back to a server that waits for it.
    Deadlock,
    /// No room: gates, connections, memory or descriptors.
    Exhausted,
    /// A wrong argument.
    Invalid,
    /// An error of the operating system.
    Io,
    /// This machine has no gates: microprocesses are kernel threads on its architecture.
    Unsupported,
    /// Another machine is not reachable, or no border runs: the request was certainly not sent.
    Unreachable,
}

/// Kinds by their number in the protocol: the order never changes.
const KINDS: [ErrorKind; 16] = [
    ErrorKind::NotFound,
    ErrorKind::InUse,
    ErrorKind::NotPermitted,
    ErrorKind::Version,
    ErrorKind::Gone,
    ErrorKind::TimedOut,
    ErrorKind::Cancelled,
    ErrorKind::TooLarge,
    ErrorKind::Malformed,
    ErrorKind::Panicked,
    ErrorKind::Deadlock,
    ErrorKind::Exhausted,
    ErrorKind::Invalid,
    ErrorKind::Io,
    ErrorKind::Unsupported,
    ErrorKind::Unreachable,
];

impl ErrorKind {
    #[doc(hidden)]
    #[must_use]
    pub fn number(self) -> u8 {
        KINDS.iter().position(|kind| *kind == self).expect("all kinds have a number") as u8
    }

    #[doc(hidden)]
    #[must_use]
    pub fn of_number(number: u8) -> Option<ErrorKind> {
        KINDS.get(usize::from(number)).copied()
    }
}

impl Error {
    /// An error of this kind with this text, for a handler to fail with.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::gate::{Error, ErrorKind};
    ///
    /// let error = Error::new(ErrorKind::Exhausted, "no table is free");
    /// assert_eq!(error.to_string(), "no table is free");
    /// ```
    #[must_use]
    pub fn new(kind: ErrorKind, text: impl Into<String>) -> Error {
        Error { kind, text: text.into() }
    }

    /// Removes the name of a gate from the beginning of the text.
    pub(crate) fn without_gate(self, name: &str) -> Error {
        let rest = self.text.strip_prefix(&format!("gate {name:?}: ")).map(str::to_owned);
        Error { text: rest.unwrap_or(self.text), ..self }
    }

    /// Names the gate, where the text does not.
    pub(crate) fn of_gate(self, name: &str) -> Error {
        if self.text.contains(&format!("{name:?}")) {
            return self;
        }
        Error { text: format!("gate {name:?}: {}", self.text), ..self }
    }

    /// What kind of thing went wrong.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::gate::{ErrorKind, RawGate};
    ///
    /// let error = RawGate::connect("no/second/slash").unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::Invalid);
    /// ```
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
