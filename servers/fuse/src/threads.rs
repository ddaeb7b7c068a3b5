//! How the work of a mount is divided among threads, of whichever kind: P1's dimension "allocation
//! of threads".

use std::fmt;
use std::num::NonZeroUsize;
use std::str::FromStr;

/// Which thread handles which request (P1, section 4, and P0's motive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Threads {
    /// So many, each of which can do everything: the paper's choice, with three.
    Identical(NonZeroUsize),
    /// As many as have something to do, and some more in waiting.
    Pool,
    /// One for each request, which ends with it. The paper dropped it: not enough memory for the
    /// stacks.
    PerRequest,
    /// One for each open file, and three identical ones for all that is asked about names.
    PerFile,
}

impl FromStr for Threads {
    type Err = String;

    fn from_str(text: &str) -> Result<Threads, String> {
        match text {
            "pool" => Ok(Threads::Pool),
            "per-request" => Ok(Threads::PerRequest),
            "per-file" => Ok(Threads::PerFile),
            number => match number.parse::<NonZeroUsize>() {
                Ok(n) if n.get() <= 1024 => Ok(Threads::Identical(n)),
                _ => {
                    Err("a number of identical threads (1 to 1024), pool, per-request or per-file is wanted".to_owned())
                }
            },
        }
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Threads::Identical(n) => write!(f, "{n}"),
            Threads::Pool => f.write_str("pool"),
            Threads::PerRequest => f.write_str("per-request"),
            Threads::PerFile => f.write_str("per-file"),
        }
    }
}
