//! To look at the address spaces of a machine from outside, and to steer what runs in them.

use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumihimo_resource::id::{Id, Kind, SPACES};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketType};
use serde::de::DeserializeOwned;

use crate::directory::socket::{self, PeerSocket};
use crate::directory::{Directory, socket_name};
pub use crate::error::Error;
use crate::handler::{Action, Done, Metric, Microprocess, Refused, Resource, Space};
use crate::protocol::{
    ActionResult, Bytes, Greeting, LONGEST_ANSWER, Line, MOST_BYTES, PROTOCOL, Request, Text,
};

/// How long a request may take.
const TIME_LIMIT: Duration = Duration::from_secs(2);
/// A long list comes in parts: the time limit is that of each wait, and so many time limits that of
/// all.
const WHOLE: u32 = 10;
/// Most bytes of a list, five times what the largest table there can be is.
const MOST: u64 = 1 << 30;
/// A connection that is closed without an answer (the server had too many) is opened again.
const ATTEMPTS: u32 = 3;

/// The address spaces of one user on this machine, as their run-time directory has them.
#[derive(Clone, Debug)]
pub struct Machine {
    pub(crate) directory: Arc<Directory>,
    time_limit: Duration,
}

impl Machine {
    /// The caller's: see [`Directory::mine`] for where that is.
    ///
    /// # Errors
    /// [`Error::Directory`].
    pub fn mine() -> Result<Machine, Error> {
        Ok(Machine { directory: Arc::new(Directory::mine()?), time_limit: TIME_LIMIT })
    }

    /// Those of directory `path`, anybody's.
    ///
    /// # Errors
    /// [`Error::Directory`].
    pub fn at(path: &Path) -> Result<Machine, Error> {
        Ok(Machine { directory: Arc::new(Directory::at(path)?), time_limit: TIME_LIMIT })
    }

    /// How long a request may wait for something to come, 2 s unless told; a long list as a whole
    /// ten times that.
    #[must_use]
    pub fn time_limit(self, time_limit: Duration) -> Machine {
        Machine { time_limit, ..self }
    }

    /// Where their run-time directory is.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// The living address spaces in order of their numbers. What dead ones left is removed, if the
    /// directory is the caller's own. One may end right after: then [`Error::Gone`] comes when it
    /// is asked.
    ///
    /// # Errors
    /// [`Error::Directory`]: something there is not Kumihimo's.
    pub fn spaces(&self) -> Result<Vec<Neighbour>, Error> {
        let mut living = Vec::new();
        for number in self.directory.numbers()? {
            let mut neighbour = self.unchecked(number);
            // Others cannot see the locks; a socket without a process refuses.
            let lives = if self.directory.is_mine() {
                self.directory.is_living(number)?
            } else {
                match neighbour.connect(Instant::now() + self.time_limit) {
                    Ok(connection) => {
                        neighbour.connection = Some(connection);
                        true
                    }
                    Err(Error::Gone(_)) => false,
                    Err(e @ Error::Directory(_)) => return Err(e),
                    // It lives, and will say why it does not answer.
                    Err(_) => true,
                }
            };
            if lives {
                living.push(neighbour);
            }
        }
        Ok(living)
    }

    /// Address space `number`: of an id, `id.location().space()`.
    ///
    /// # Errors
    /// [`Error::Gone`]: there is none. [`Error::Directory`].
    pub fn neighbour(&self, number: u16) -> Result<Neighbour, Error> {
        let none = |why: &str| {
            Error::Gone(format!(
                "there is no address space {number} in {}{why}",
                self.path().display()
            ))
        };
        if number == 0 {
            return Err(none(": 0 is one that has no number, and that nobody else can find"));
        }
        if number >= SPACES {
            return Err(none(&format!(": numbers end at {}", SPACES - 1)));
        }
        let mine = self.directory.is_mine();
        let lives = if mine {
            self.directory.is_living(number)?
        } else {
            self.directory.socket(&socket_name(number))?
        };
        if lives { Ok(self.unchecked(number)) } else { Err(none("")) }
    }

    fn unchecked(&self, number: u16) -> Neighbour {
        Neighbour {
            directory: self.directory.clone(),
            number,
            time_limit: self.time_limit,
            connection: None,
        }
    }
}

/// One address space, seen from outside. It connects when it is first asked, and again when the
/// connection was closed meanwhile. All requests block the kernel thread, each within the time
/// limit.
#[derive(Debug)]
pub struct Neighbour {
    directory: Arc<Directory>,
    number: u16,
    time_limit: Duration,
    connection: Option<Connection>,
}

impl Neighbour {
    /// Its number: the first part of the ids in it.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// The address space itself.
    ///
    /// # Errors
    /// Any [`Error`], as all of the following.
    pub fn space(&mut self) -> Result<Space, Error> {
        self.one(&Request::Space)
    }

    /// Every living microprocess in it.
    ///
    /// # Errors
    /// Any.
    pub fn microprocesses(&mut self) -> Result<Vec<Microprocess>, Error> {
        self.all(&Request::Microprocesses)
    }

    /// One of them.
    ///
    /// # Errors
    /// [`Refused::Stale`]: it has ended. Any other.
    pub fn microprocess(&mut self, id: Id) -> Result<Microprocess, Error> {
        self.one(&Request::Microprocess { id })
    }

    /// The usage table, of one kind or of all.
    ///
    /// # Errors
    /// Any.
    pub fn resources(&mut self, kind: Option<Kind>) -> Result<Vec<Resource>, Error> {
        self.all(&Request::Resources { kind: kind.map(|kind| kind.to_string()) })
    }

    /// Suspends, resumes, cancels one, or changes its priority.
    ///
    /// # Errors
    /// Any.
    pub fn act(&mut self, id: Id, action: Action) -> Result<Done, Error> {
        self.one(&Request::Act { id, action }).map(|ActionResult { done }| done)
    }

    /// Where one is in its program, a line a frame.
    ///
    /// # Errors
    /// Any.
    pub fn backtrace(&mut self, id: Id) -> Result<String, Error> {
        self.one(&Request::Backtrace { id }).map(|Text { text }| text)
    }

    /// All that is counted there.
    ///
    /// # Errors
    /// Any.
    pub fn metrics(&mut self) -> Result<Vec<Metric>, Error> {
        self.all(&Request::Metrics)
    }

    /// Writes the trace so far to `out`, in Perfetto's format. Takes as long as it takes, as long
    /// as something comes within each time limit.
    ///
    /// # Errors
    /// [`Refused::Unsupported`]: nothing is traced there. [`Error::Io`]: what `out` says. Any
    /// other.
    pub fn trace(&mut self, out: &mut dyn Write) -> Result<(), Error> {
        self.ask(&Request::Trace, &mut |connection, Bytes { bytes }| {
            if bytes > MOST_BYTES {
                return Err(connection.nonsense(&format!("{bytes} bytes in one part")).into());
            }
            connection.whole = None;
            connection.copy(bytes, out)
        })?;
        // The server closes it after a trace.
        self.connection = None;
        Ok(())
    }

    fn all<T: DeserializeOwned>(&mut self, ask: &Request) -> Result<Vec<T>, Error> {
        let mut all = Vec::new();
        self.ask(ask, &mut |_, item| {
            all.push(item);
            Ok(())
        })?;
        Ok(all)
    }

    fn one<T: DeserializeOwned>(&mut self, ask: &Request) -> Result<T, Error> {
        let mut items = self.all(ask)?;
        match (items.pop(), items.is_empty()) {
            (Some(item), true) => Ok(item),
            _ => {
                self.connection = None;
                Err(Error::Protocol(format!(
                    "address space {}: one answer was expected",
                    self.number
                )))
            }
        }
    }

    fn ask<T: DeserializeOwned>(
        &mut self,
        ask: &Request,
        each: &mut dyn FnMut(&mut Connection, T) -> Result<(), Failure>,
    ) -> Result<(), Error> {
        let line = ask.line();
        let now = Instant::now();
        for _ in 0..ATTEMPTS {
            let mut connection = match self.connection.take() {
                Some(connection) if connection.is_open() => connection,
                _ => self.connect(now + self.time_limit)?,
            };
            connection.deadline = now + self.time_limit;
            connection.whole = Some(now + self.time_limit * WHOLE);
            connection.received = 0;
            match connection.exchange(&line, each) {
                Ok(()) => {
                    self.connection = Some(connection);
                    return Ok(());
                }
                Err(Failure::Closed)
                    if connection.received == 0 && connection.start == connection.buffer.len() => {}
                Err(Failure::Closed) => {
                    let text = format!(
                        "address space {} ended in the middle of its answer, or closed the connection",
                        self.number
                    );
                    return Err(Error::Gone(text));
                }
                Err(Failure::Error(error)) => {
                    // After an error both sides are at the end of an answer; after anything else
                    // nobody knows.
                    if let Error::Refused(_) = error {
                        self.connection = Some(connection);
                    }
                    return Err(error);
                }
            }
        }
        let lives = self.directory.is_mine() && self.directory.is_living(self.number)?;
        let closes = format!("address space {} closes connections without an answer", self.number);
        Err(if lives {
            Error::Refused(Refused::Busy(format!("{closes}: too many ask it at once")))
        } else {
            Error::Gone(format!("{closes}: it is ending"))
        })
    }

    fn connect(&self, deadline: Instant) -> Result<Connection, Error> {
        let number = self.number;
        let name = socket_name(number);
        let PeerSocket { socket, pid, .. } =
            socket::reach(&self.directory, number, &name, SocketType::STREAM, deadline)?;
        net::sockopt::set_socket_timeout(
            &socket,
            net::sockopt::Timeout::Send,
            Some(self.time_limit),
        )
        .map_err(Error::io(format!("address space {number}")))?;
        let mut connection = Connection {
            number,
            socket,
            pid,
            time_limit: self.time_limit,
            buffer: Vec::new(),
            start: 0,
            received: 0,
            deadline,
            whole: Some(deadline),
        };
        connection.greeting().map_err(|failure| match failure {
            Failure::Closed => socket::gone(number, "it closed the connection"),
            Failure::Error(error) => error,
        })?;
        Ok(connection)
    }
}

enum Failure {
    /// By the other side.
    Closed,
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

#[derive(Debug)]
struct Connection {
    number: u16,
    socket: OwnedFd,
    /// 0 where it is in another pid namespace that this one cannot see into.
    pid: i32,
    time_limit: Duration,
    buffer: Vec<u8>,
    /// What stands before has been read.
    start: usize,
    /// Bytes of this answer.
    received: u64,
    /// Something comes before, ...
    deadline: Instant,
    /// ... and the end of the answer, if there is a limit to that, before this.
    whole: Option<Instant>,
}

impl Connection {
    /// The server speaks first, so that nothing is ever sent to one that is not what it seems.
    fn greeting(&mut self) -> Result<(), Failure> {
        let line = self.line()?;
        let greeting = match Line::<Greeting>::parse(&self.buffer[line]) {
            Ok(Line::Item(greeting)) => greeting,
            Ok(Line::Error(refused)) => return Err(Error::Refused(refused).into()),
            Ok(Line::End(_)) => return Err(self.nonsense("an end without an answer").into()),
            Err(e) => return Err(self.nonsense(&e).into()),
        };
        if greeting.protocol != PROTOCOL {
            return Err(Error::Protocol(format!(
                "address space {} (Kumihimo {}) speaks protocol {}, and this program (Kumihimo {}) protocol {PROTOCOL}: use one of its version",
                self.number,
                greeting.version,
                greeting.protocol,
                env!("CARGO_PKG_VERSION")
            ))
            .into());
        }
        if greeting.space != self.number {
            return Err(self
                .nonsense(&format!("it says that it is address space {}", greeting.space))
                .into());
        }
        Ok(())
    }

    /// Nothing came since the last answer, so it was not closed either.
    fn is_open(&self) -> bool {
        let mut fds = [PollFd::new(&self.socket, PollFlags::IN)];
        self.start == self.buffer.len()
            && matches!(poll(&mut fds, Some(&Timespec::default())), Ok(0))
    }

    fn exchange<T: DeserializeOwned>(
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
                    return Err(self.nonsense(&format!("{count} lines came of {of}")).into());
                }
                Ok(Line::Error(refused)) => return Err(Error::Refused(refused).into()),
                Err(e) => return Err(self.nonsense(&e).into()),
            }
        }
    }

    fn send(&mut self, mut line: &[u8]) -> Result<(), Failure> {
        while !line.is_empty() {
            match net::send(&self.socket, line, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(n) => line = &line[n..],
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(PollFlags::OUT)?,
                // What it said before it closed may say why.
                Err(Errno::PIPE | Errno::CONNRESET) => return Ok(()),
                Err(e) => return Err(self.io(e)),
            }
        }
        Ok(())
    }

    /// The next line, without its end: where in the buffer it is.
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

    /// The next `bytes` bytes.
    fn copy(&mut self, mut bytes: usize, out: &mut dyn Write) -> Result<(), Failure> {
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

    /// Some more, behind what has not been read, which moves to the beginning.
    fn receive(&mut self) -> Result<(), Failure> {
        const AT_ONCE: usize = 256 << 10;
        self.buffer.drain(..self.start);
        self.start = 0;
        let filled = self.buffer.len();
        self.buffer.resize(filled + AT_ONCE, 0);
        let received = loop {
            match net::recv(&self.socket, &mut self.buffer[filled..], RecvFlags::DONTWAIT) {
                Ok((_, 0)) | Err(Errno::CONNRESET) => break Err(Failure::Closed),
                Ok((_, n)) => break Ok(n),
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
        let deadline = self.whole.map_or(self.deadline, |whole| whole.min(self.deadline));
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let mut fds = [PollFd::from_borrowed_fd(self.socket.as_fd(), for_what)];
            match poll(&mut fds, Timespec::try_from(left).ok().as_ref()) {
                Ok(0) if left.is_zero() => return Err(self.silence().into()),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => return Ok(()),
                Err(e) => return Err(self.io(e)),
            }
        }
    }

    /// Why nothing comes.
    fn silence(&self) -> Error {
        let (number, pid) = (self.number, self.pid);
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // After the program's name, which may contain anything: proc_pid_stat(5).
        let state = stat.rsplit(')').next().and_then(|rest| rest.trim_start().chars().next());
        if matches!(state, Some('T' | 't')) {
            return Error::Stopped(format!(
                "address space {number} is stopped, so nobody answers: kill -CONT {pid}, or end its debugger"
            ));
        }
        let process = if pid == 0 {
            "a process in another pid namespace".to_owned()
        } else {
            format!("process {pid}")
        };
        Error::Timeout(format!(
            "address space {number} ({process}) did not answer within {:?}",
            self.time_limit
        ))
    }

    fn nonsense(&self, what: &str) -> Error {
        Error::Protocol(format!(
            "address space {}: its answer cannot be understood ({what}): another version of Kumihimo?",
            self.number
        ))
    }

    fn io(&self, e: Errno) -> Failure {
        Failure::Error(Error::Io(format!("address space {}", self.number), e.into()))
    }
}
