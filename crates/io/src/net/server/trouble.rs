//! Reasons for which connections are refused or cannot be accepted.

use std::fmt;
use std::io::{self, ErrorKind};

/// Reason why connections are refused, or temporarily not accepted.
///
/// # Examples
///
/// ```
/// use kumihimo::net::{Cause, Server, TcpListener, TcpStream};
/// # use kumihimo::thread;
/// # use std::io::Read;
/// use std::sync::mpsc;
/// # use std::time::Duration;
///
/// let (sender, causes) = mpsc::channel();
/// let server = Server::new().memory(1 << 12).on_trouble(move |trouble| {
///     sender.send(trouble.cause).unwrap();
/// });
/// # let listener = TcpListener::bind("127.0.0.1:0")?;
/// # let addr = listener.local_addr()?;
/// thread::scope(|s| {
///     let serving = s.spawn(|| server.serve(&listener, |_stream, _peer| {}));
///     TcpStream::connect(addr)?.read(&mut [0])?;
///     server.drain(Duration::ZERO);
///     serving.join().unwrap()
/// })?;
/// assert_eq!(causes.recv(), Ok(Cause::Memory), "the process has more than 4 KiB resident");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Cause {
    /// The maximum of [`Server::connections`](super::Server::connections) is reached.
    Connections,
    /// The process has more memory resident than [`Server::memory`](super::Server::memory) allows.
    Memory,
    /// The process (`EMFILE`) or the machine (`ENFILE`) has no descriptor left.
    Descriptors,
    /// The kernel has no memory for another connection (`ENOBUFS`, `ENOMEM`): the accept loop
    /// pauses.
    Kernel,
    /// No microprocess can start: a limit of the runtime is reached, or no memory for a stack.
    Microprocesses,
}

/// A report to the hook of [`Server::on_trouble`](super::Server::on_trouble). `Display` gives one
/// line: what happened, at which listener, and what to do.
///
/// # Examples
///
/// ```
/// use kumihimo::net::{Server, TcpListener, TcpStream};
/// # use kumihimo::thread;
/// # use std::io::Read;
/// use std::sync::mpsc;
/// # use std::time::Duration;
///
/// let (sender, lines) = mpsc::channel();
/// let server = Server::new().connections(0).on_trouble(move |trouble| {
///     assert_eq!(trouble.count, 1);
///     sender.send(trouble.to_string()).unwrap();
/// });
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let addr = listener.local_addr()?;
/// thread::scope(|s| {
///     let serving = s.spawn(|| server.serve(&listener, |_stream, _peer| {}));
///     TcpStream::connect(addr)?.read(&mut [0])?;
///     server.drain(Duration::ZERO);
///     serving.join().unwrap()
/// })?;
/// let line = lines.recv().unwrap();
/// assert!(line.starts_with(&format!("server at {addr}: connections refused: 1: 0 are open")));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub struct Trouble {
    /// The listener's address.
    pub listener: String,
    /// The reason.
    pub cause: Cause,
    /// Number of occurrences since the last report of this cause, over all listeners.
    pub count: u64,
    /// The limit that was reached, or the error.
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
                "failures to accept a connection",
                "raise the descriptor limit (ulimit -n), or set Server::connections",
            ),
            Cause::Kernel => ("failures to accept a connection", "the kernel is short of memory"),
            Cause::Microprocesses => ("connections closed", "no microprocess can begin"),
        };
        write!(f, "server at {listener}: {what}: {count}: {detail}; {advice}")
    }
}

/// The object that an error of accept(2) concerns.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// One connection, which is gone; the next one may succeed.
    Connection,
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
            // Errors of the new connection, which Linux passes on (accept(2), "Error handling").
            // EPERM: a firewall rule.
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
            ) => Failure::Connection,
            None if e.kind() == ErrorKind::TimedOut => Failure::Deadline,
            _ => Failure::Final,
        }
    }
}

#[cfg(test)]
mod tests;
