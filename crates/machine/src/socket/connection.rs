//! Connection to a server of this machine, which is an address space's control socket or the
//! border: the lines and bytes of one exchange.

use std::io::Write;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, SendFlags};
use serde::de::DeserializeOwned;

use crate::client::answering::Answering;
use crate::directory::socket::Reached;
use crate::error::Error;
use crate::protocol::{Greeting, LONGEST_ANSWER, Line, PROTOCOL};
use crate::socket::descriptors::{Descriptors, Kept};
use crate::socket::peer_socket::{PeerSocket, Pending};

/// Largest number of bytes in a list; the largest possible table is a fifth of this.
const MOST: u64 = 1 << 30;

/// Why an exchange failed.
pub(crate) enum Failure {
    /// The server closed the connection.
    Closed,
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

/// A connection to a control socket, directly or through the border of this machine.
#[derive(Debug)]
pub(crate) struct Connection {
    /// What messages call the server: `address space 12`.
    pub(crate) server: String,
    pub(crate) socket: PeerSocket,
    /// 0 if the process is in a pid namespace that is not visible from this one.
    pub(crate) pid: i32,
    pub(crate) time_limit: Duration,
    pub(crate) buffer: Vec<u8>,
    /// The bytes before this position were read.
    pub(crate) start: usize,
    /// Number of bytes of this answer.
    pub(crate) received: u64,
    /// Time by which data must arrive.
    pub(crate) deadline: Instant,
    /// Time by which the answer must end, if that is limited.
    pub(crate) whole: Option<Instant>,
}

impl Connection {
    /// Starts with a connected socket, from which data must arrive by `deadline`.
    pub(crate) fn new(
        server: String,
        Reached { socket, uid, pid }: Reached,
        time_limit: Duration,
        deadline: Instant,
    ) -> Result<Connection, Error> {
        net::sockopt::set_socket_timeout(&socket, net::sockopt::Timeout::Send, Some(time_limit))
            .map_err(Error::io(server.clone()))?;
        Ok(Connection {
            server,
            socket: PeerSocket::opaque(Kept::new(socket, &Descriptors::new()), uid),
            pid,
            time_limit,
            buffer: Vec::new(),
            start: 0,
            received: 0,
            deadline,
            whole: Some(deadline),
        })
    }

    /// Reads the greeting of address space `number`. The server sends first, so no request reaches
    /// a server of another kind.
    pub(crate) fn greeting(&mut self, number: u16) -> Result<(), Failure> {
        let greeting: Greeting = self.first_line()?;
        self.check_protocol(greeting.protocol, &greeting.version)?;
        if greeting.space != number {
            return Err(self
                .nonsense(&format!("its greeting names address space {}", greeting.space))
                .into());
        }
        Ok(())
    }

    /// Reads the first line that a server sends.
    pub(crate) fn first_line<T: DeserializeOwned>(&mut self) -> Result<T, Failure> {
        let line = self.line()?;
        match Line::<T>::parse(&self.buffer[line]) {
            Ok(Line::Item(greeting)) => Ok(greeting),
            Ok(Line::Error(refused)) => Err(Error::Refused(refused).into()),
            Ok(Line::End(_)) => Err(self.nonsense("an end without an answer").into()),
            Err(e) => Err(self.nonsense(&e).into()),
        }
    }

    /// Checks the version of the protocol in a greeting.
    pub(crate) fn check_protocol(&self, protocol: u32, version: &str) -> Result<(), Failure> {
        if protocol == PROTOCOL {
            return Ok(());
        }
        Err(Error::Protocol(format!(
            "{} (Kumihimo {version}) uses protocol {protocol}, but this program (Kumihimo {}) uses protocol {PROTOCOL}: use the same version",
            self.server,
            env!("CARGO_PKG_VERSION")
        ))
        .into())
    }

    /// Returns whether the connection is open: no data has arrived since the last answer.
    pub(crate) fn is_open(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        self.start == self.buffer.len()
            && matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }

    pub(crate) fn exchange<T: DeserializeOwned>(
        &mut self,
        request: &[u8],
        each: &mut dyn FnMut(&mut Connection, T) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        self.send(request)?;
        let mut count = 0;
        loop {
            let line = self.line()?;
            match Line::parse(&self.buffer[line]) {
                Ok(Line::Item(item)) => {
                    count += 1;
                    each(self, item)?;
                }
                Ok(Line::End(of)) if of == count => return Ok(()),
                Ok(Line::End(of)) => {
                    return Err(self.nonsense(&format!("{count} of {of} lines arrived")).into());
                }
                Ok(Line::Error(refused)) => return Err(Error::Refused(refused).into()),
                Err(e) => return Err(self.nonsense(&e).into()),
            }
        }
    }

    pub(crate) fn send(&mut self, mut line: &[u8]) -> Result<(), Failure> {
        while !line.is_empty() {
            match net::send(&self.socket, line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => line = &line[n..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                // The answer that the server sent before it closed the connection may contain the
                // reason.
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(e) => return Err(self.io(e)),
            }
        }
        Ok(())
    }

    /// Reads the next line, and returns its range in the buffer, without its end.
    fn line(&mut self) -> Result<std::ops::Range<usize>, Failure> {
        let mut searched = self.start;
        loop {
            if let Some(at) = self.buffer[searched..].iter().position(|byte| *byte == b'\n') {
                let line = self.start..searched + at;
                self.start = line.end + 1;
                return Ok(line);
            }
            searched = self.buffer.len() - self.start;
            if searched > LONGEST_ANSWER {
                return Err(self.nonsense("a line without an end").into());
            }
            self.receive()?;
        }
    }

    /// Copies the next `bytes` bytes to `out`.
    pub(crate) fn copy(&mut self, mut bytes: usize, out: &mut dyn Write) -> Result<(), Failure> {
        while bytes > 0 {
            if self.start == self.buffer.len() {
                self.receive()?;
            }
            let part = &self.buffer[self.start..][..bytes.min(self.buffer.len() - self.start)];
            out.write_all(part).map_err(|e| Error::Io("the trace's output".into(), e))?;
            self.start += part.len();
            bytes -= part.len();
        }
        Ok(())
    }

    /// Receives more bytes. Moves the unread bytes to the beginning of the buffer, and appends the
    /// new ones.
    fn receive(&mut self) -> Result<(), Failure> {
        const AT_ONCE: usize = 256 << 10;
        self.buffer.drain(..self.start);
        self.start = 0;
        let filled = self.buffer.len();
        self.buffer.resize(filled + AT_ONCE, 0);
        let received = loop {
            match self.socket.receive(&mut self.buffer[filled..]) {
                Ok(Pending::End) | Err(Errno::CONNRESET) => break Err(Failure::Closed),
                Ok(Pending::Plain(n)) => break Ok(n),
                Ok(Pending::Descriptor) => {
                    break Err(self.nonsense("it passes a descriptor").into());
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    if let Err(failure) = self.wait(PollFlags::IN) {
                        break Err(failure);
                    }
                }
                Err(e) => break Err(self.io(e)),
            }
        };
        self.buffer.truncate(filled + *received.as_ref().unwrap_or(&0));
        self.received += received? as u64;
        self.deadline = Instant::now() + self.time_limit;
        if self.whole.is_some() && self.received > MOST {
            return Err(self.nonsense("an answer without an end").into());
        }
        Ok(())
    }

    fn wait(&self, for_what: PollFlags) -> Result<(), Failure> {
        let within = |time: Instant| self.whole.map_or(time, |whole| whole.min(time));
        let mut until = within(self.deadline);
        let mut answering: Option<Answering> = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), for_what)];
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) if left.is_zero() => {
                    let now = Instant::now();
                    let is_over = self.whole.is_some_and(|whole| whole <= now);
                    let goes_on = answering.as_mut().is_none_or(Answering::goes_on);
                    if is_over || !goes_on {
                        return Err(self.silence().into());
                    }
                    answering.get_or_insert_with(|| Answering::begin(self.pid));
                    until = within(now + Answering::LOOK_EVERY);
                }
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(self.io(e)),
            }
        }
    }

    /// Returns why no data arrives.
    fn silence(&self) -> Error {
        let (server, pid) = (&self.server, self.pid);
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The state follows the program's name, which may contain any characters: proc_pid_stat(5).
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        if matches!(state, Some('T' | 't')) {
            return Error::Stopped(format!(
                "{server} is stopped and cannot answer: kill -CONT {pid}, or detach its debugger"
            ));
        }
        let process = if pid == 0 {
            "a process in another pid namespace".to_owned()
        } else {
            format!("process {pid}")
        };
        Error::Timeout(format!("{server} ({process}) did not answer within {:?}", self.time_limit))
    }

    pub(crate) fn nonsense(&self, what: &str) -> Error {
        Error::Protocol(format!(
            "{}: invalid answer ({what}); it may be another version of Kumihimo",
            self.server
        ))
    }

    fn io(&self, e: Errno) -> Failure {
        Failure::Error(Error::Io(self.server.clone(), e.into()))
    }
}
