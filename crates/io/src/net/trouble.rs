//! What goes wrong where connections are accepted.

use std::fmt;
use std::io::{self, ErrorKind};

/// Why connections are refused, or not accepted for the moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// As many are open as [`Server::connections`](super::Server::connections) allows.
    Connections,
    /// The process has more memory resident than [`Server::memory`](super::Server::memory) allows.
    Memory,
    /// The process (`EMFILE`) or the machine (`ENFILE`) has no descriptor left.
    Descriptors,
    /// The kernel has no memory for another one (`ENOBUFS`, `ENOMEM`): nothing is accepted for a
    /// moment.
    Kernel,
    /// No microprocess can begin: a limit of the runtime's, or no memory for a stack.
    Microprocesses,
}

/// What [`Server::on_trouble`](super::Server::on_trouble) is told. As text: one line that says what
/// happened, where, and what can be done.
#[derive(Debug)]
#[non_exhaustive]
pub struct Trouble {
    /// The listener's address.
    pub listener: String,
    /// Why.
    pub cause: Cause,
    /// How often since this cause was last told of, on any listener of the server.
    pub count: u64,
    /// More about it: the limit that is reached, or the error.
    pub detail: String,
}

impl Cause {
    pub(super) const COUNT: usize = Cause::Microprocesses as usize + 1;
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Trouble { listener, cause, count, detail } = self;
        let (what, advice) = match cause {
            Cause::Connections => ("connections refused", "as many as Server::connections allows"),
            Cause::Memory => ("connections refused", "see Server::memory"),
            Cause::Descriptors => (
                "times no connection could be accepted",
                "raise the descriptor limit (ulimit -n), or set Server::connections",
            ),
            Cause::Kernel => {
                ("times no connection could be accepted", "the kernel is short of memory")
            }
            Cause::Microprocesses => ("connections closed", "no microprocess can begin"),
        };
        write!(f, "server at {listener}: {count} {what}: {detail}; {advice}")
    }
}

/// What an error of accept(2) is about.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// One connection, which is gone; the next one may be all right.
    OfOne,
    Descriptors,
    Memory,
    Deadline,
    Final,
}

impl Failure {
    pub(super) fn of(e: &io::Error) -> Failure {
        match e.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => Failure::Descriptors,
            Some(libc::ENOBUFS | libc::ENOMEM) => Failure::Memory,
            // accept(2), "Error handling": errors of the new connection that are passed on. EPERM:
            // a firewall's rule.
            Some(
                libc::ECONNABORTED
                | libc::ENETDOWN
                | libc::EPROTO
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
                | libc::ETIMEDOUT
                | libc::EPERM,
            ) => Failure::OfOne,
            None if e.kind() == ErrorKind::TimedOut => Failure::Deadline,
            _ => Failure::Final,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_accept() {
        let of = |n| Failure::of(&io::Error::from_raw_os_error(n));
        for (n, failure) in [
            (libc::EMFILE, Failure::Descriptors),
            (libc::ENFILE, Failure::Descriptors),
            (libc::ENOBUFS, Failure::Memory),
            (libc::ENOMEM, Failure::Memory),
            (libc::ECONNABORTED, Failure::OfOne),
            (libc::EPERM, Failure::OfOne),
            (libc::EBADF, Failure::Final),
            (libc::EINVAL, Failure::Final),
        ] {
            assert_eq!(of(n), failure, "{n}");
        }
        assert_eq!(
            Failure::of(&io::Error::new(ErrorKind::TimedOut, "the scope's")),
            Failure::Deadline
        );
    }
}
