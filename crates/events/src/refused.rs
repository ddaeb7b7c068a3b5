//! Why the machine refuses something, and what would change that.

use std::fmt;

/// A facility that is not to be had here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// Which step failed, and how.
    pub why: String,
    /// The command or setting that would enable it.
    pub remedy: String,
}

impl Refused {
    /// Of both texts.
    pub fn new(why: impl Into<String>, remedy: impl Into<String>) -> Refused {
        Refused { why: why.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.remedy)
    }
}

impl std::error::Error for Refused {}
