//! Why microprocesses cannot have blocks of their own here.

use std::io;

/// Why blocks are unavailable.
pub(super) enum Failure {
    /// No kernel thread or no memory at the moment: the next try may succeed.
    Short(String),
    /// This machine, or this process, has none.
    Final(String),
}

impl Failure {
    pub(super) fn of(what: &str, error: &io::Error) -> Failure {
        let text = format!("{what}: {error}");
        match error.raw_os_error() {
            Some(libc::EAGAIN | libc::ENOMEM) => Failure::Short(text),
            _ => Failure::Final(text),
        }
    }
}

impl From<String> for Failure {
    fn from(why: String) -> Failure {
        Failure::Final(why)
    }
}

impl From<&str> for Failure {
    fn from(why: &str) -> Failure {
        Failure::Final(why.into())
    }
}
