//! What a check of a trace comes to.

use std::fmt;

/// What a trace proves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All that was asked for.
    Holds,
    /// Something is wrong.
    Violated,
    /// Nothing: records were lost, the trace ends too early, or steps are not told of.
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
