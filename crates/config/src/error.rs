//! Errors of the configuration.

use std::fmt;
use std::io;

/// Variable, or pair of `KUMI_LAB`, that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The variable's name.
    pub variable: String,
    /// Its value; for `KUMI_LAB`, the invalid pair.
    pub value: String,
    pub(crate) why: Why,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The value is outside of the grammar, which this text describes.
    Expected(String),
    /// The variable belongs to an earlier version. Holds the assignment that replaces it, if any.
    Replaced(Option<String>),
}

/// `KUMI_VPS=many: expected a number of virtual processors, 1 to 1024`.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Escaped, because a value may contain control sequences for the terminal.
        write!(f, "{}={}: ", self.variable, self.value.escape_debug())?;
        match &self.why {
            Why::Expected(allowed) => write!(f, "expected {allowed}"),
            Why::Replaced(Some(successor)) => {
                write!(f, "this variable was replaced, set {} instead", successor.escape_debug())
            }
            Why::Replaced(None) => f.write_str("this variable was removed, unset it"),
        }
    }
}

/// All variables of the process that cannot be used, in the order of the table. Never empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    pub(crate) problems: Vec<Problem>,
}

impl Error {
    /// Returns the invalid variables.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, problem) in self.problems.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "{problem}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// Converts to `InvalidInput` with the same text.
impl From<&Error> for io::Error {
    fn from(error: &Error) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidInput, error.clone())
    }
}
