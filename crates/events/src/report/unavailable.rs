//! The error of an unavailable event source: the reason and the remedy.

use std::fmt;

/// An event source, or another service of the kernel, that is unavailable on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unavailable {
    /// The step that failed, on which object, with the name of the errno.
    pub why: String,
    /// The command or setting that would make the service available.
    pub remedy: String,
}

impl fmt::Display for Unavailable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; to enable: {}", self.why, self.remedy)
    }
}

impl std::error::Error for Unavailable {}

impl Unavailable {
    /// Creates an error from both texts.
    pub fn new(why: impl Into<String>, remedy: impl Into<String>) -> Unavailable {
        Unavailable { why: why.into(), remedy: remedy.into() }
    }
}
