//! Errors from the examination of the C library.

use std::io;

/// Why blocks are unavailable.
pub(super) enum Failure {
    /// Kernel threads or memory are short at the moment; a later attempt may succeed.
    Short(String),
    /// Blocks are not possible on this machine or in this process.
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
