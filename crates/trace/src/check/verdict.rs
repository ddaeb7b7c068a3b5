//! Verdict of a check.

use std::fmt;

/// The result of checking a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All checked properties hold.
    Holds,
    /// A property is violated.
    Violated,
    /// Nothing can be concluded: records were lost, the trace ends too early, or steps are not
    /// recorded.
    Incomplete,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Verdict::Holds => "holds",
            Verdict::Violated => "VIOLATED",
            Verdict::Incomplete => "incomplete: nothing is proved",
        })
    }
}
