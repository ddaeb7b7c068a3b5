//! Why an event source cannot be had, and what would change that.

use std::fmt;

/// What the machine refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The step that failed, on which object, with the name of the errno.
    pub why: String,
    /// The command or setting that would allow it, as exactly as can be said.
    pub remedy: String,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; to enable: {}", self.why, self.remedy)
    }
}

impl std::error::Error for Refused {}

impl Refused {
    /// Of both texts.
    pub fn new(why: impl Into<String>, remedy: impl Into<String>) -> Refused {
        Refused { why: why.into(), remedy: remedy.into() }
    }
}
