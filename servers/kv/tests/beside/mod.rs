//! Shared by the tests: Kumihimo's server and Redis as child processes, and a client that parses
//! replies.
#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

/// Path of the server program.
pub const KV: &str = env!("CARGO_BIN_EXE_kumihimo-kv");

/// Timeout of replies. A longer wait means a hang.
const PATIENCE: Duration = Duration::from_secs(60);

/// A temporary directory, removed when dropped.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("kv-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A server in a child process, killed when dropped.
pub struct Served {
    pub child: Child,
    /// TCP port on which the server listens, if it does.
    pub port: u16,
    unix: Option<PathBuf>,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    /// Starts Kumihimo's server on a free port with additional arguments.
    pub fn start(args: &[&str]) -> Served {
        Served::spawn(Command::new(KV).args(["--listen", "127.0.0.1:0"]).args(args))
    }

    /// Starts a program that prints `listening 127.0.0.1:PORT`.
    pub fn spawn(command: &mut Command) -> Served {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("a pipe"))
            .read_line(&mut line)
            .expect("a line of output");
        let port = line.trim_end().rsplit(':').next().and_then(|port| port.parse().ok());
        let Some(port) = port else {
            let mut said = String::new();
            child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
            panic!("the server said {line:?}, {said:?}");
        };
        Served { child, port, unix: None }
    }

    /// Starts Redis on a socket in `folder`. Reports `test` as skipped and returns `None` if Redis
    /// is not installed.
    pub fn redis(test: &str, folder: &Folder) -> Option<Served> {
        if Command::new("redis-server").arg("--version").stdout(Stdio::null()).status().is_err() {
            kumihimo_tests::skip(test, "no redis-server (apt-get install redis-server)");
            return None;
        }
        let socket = folder.file("redis.sock");
        let child = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--unixsocket"])
            .arg(&socket)
            .current_dir(&folder.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server starts");
        let mut served = Served { child, port: 0, unix: Some(socket) };
        let mut said = BufReader::new(served.child.stdout.take().expect("a pipe")).lines();
        let ready = said.by_ref().any(|line| line.expect("text").contains("connections at"));
        assert!(ready, "redis-server ended");
        // Drain the output, so that Redis never blocks on a full pipe.
        std::thread::spawn(move || said.for_each(drop));
        Some(served)
    }

    pub fn client(&self) -> Client {
        match &self.unix {
            Some(path) => Client::new(UnixStream::connect(path).expect("a listening socket")),
            None => {
                let stream =
                    TcpStream::connect(("127.0.0.1", self.port)).expect("a listening socket");
                stream.set_nodelay(true).expect("a socket");
                Client::new(stream)
            }
        }
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("it runs");
    }

    /// Waits until the server exits. Returns its status and its standard error.
    pub fn ended(mut self) -> (ExitStatus, String) {
        let mut said = String::new();
        self.child.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
        (self.child.wait().expect("it ends"), said)
    }

    /// Kills the server with SIGKILL.
    pub fn kill(self) {
        self.signal(Signal::KILL);
        drop(self);
    }

    /// Number of the server's open sockets. (Other descriptors are not counted, because the runtime
    /// opens some of its own on demand.)
    pub fn sockets(&self) -> usize {
        let all =
            std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).expect("procfs").flatten();
        all.filter(|entry| {
            std::fs::read_link(entry.path())
                .is_ok_and(|to| to.as_os_str().as_encoded_bytes().starts_with(b"socket:"))
        })
        .count()
    }

    /// Resident memory of the server in bytes.
    pub fn memory(&self) -> usize {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).expect("procfs");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("proc_pid_status(5)");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") * 1024
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reply {
    /// A one-line reply. The first byte is its type: `+`, `-`, `:`, `_`.
    Line(char, String),
    /// `$` or `=`; `None` for the null of RESP2.
    Bulk(char, Option<Vec<u8>>),
    /// `*`, `%`, `~` or `>`.
    Many(char, Option<Vec<Reply>>),
}

impl Reply {
    pub fn bulk(text: &str) -> Reply {
        Reply::Bulk('$', Some(text.as_bytes().to_vec()))
    }

    pub fn ok() -> Reply {
        Reply::Line('+', "OK".to_owned())
    }

    pub fn integer(number: i64) -> Reply {
        Reply::Line(':', number.to_string())
    }

    pub fn error(text: &str) -> Reply {
        Reply::Line('-', text.to_owned())
    }

    /// The members of an array.
    pub fn members(&self) -> &[Reply] {
        match self {
            Reply::Many(_, Some(members)) => members,
            other => panic!("{other:?} has no members"),
        }
    }

    pub fn bytes(&self) -> &[u8] {
        match self {
            Reply::Bulk(_, Some(bytes)) => bytes,
            other => panic!("{other:?} is no string"),
        }
    }

    /// The reply with its members sorted, for comparisons that ignore the order.
    pub fn sorted(self) -> Reply {
        match self {
            Reply::Many(kind, Some(mut members)) => {
                members.sort();
                Reply::Many(kind, Some(members))
            }
            other => other,
        }
    }
}

pub trait Socket: Read + Write + Send {
    fn timed(&self);
    fn half_close(&self);
}

impl Socket for TcpStream {
    fn half_close(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }

    fn timed(&self) {
        self.set_read_timeout(Some(PATIENCE)).expect("a socket");
        self.set_write_timeout(Some(PATIENCE)).expect("a socket");
    }
}

impl Socket for UnixStream {
    fn half_close(&self) {
        let _ = self.shutdown(Shutdown::Write);
    }

    fn timed(&self) {
        self.set_read_timeout(Some(PATIENCE)).expect("a socket");
        self.set_write_timeout(Some(PATIENCE)).expect("a socket");
    }
}

/// A connection to a server.
pub struct Client(BufReader<Box<dyn Socket>>);

impl Client {
    pub fn new(stream: impl Socket + 'static) -> Client {
        stream.timed();
        Client(BufReader::new(Box::new(stream)))
    }

    pub fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).expect("the server takes it");
    }

    /// As [`send`](Client::send), for a server that may have closed the connection. Returns whether
    /// the bytes were sent.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        self.0.get_mut().write_all(bytes).is_ok()
    }

    /// Shuts down the sending direction.
    pub fn half_close(&self) {
        self.0.get_ref().half_close();
    }

    /// Sends one command.
    pub fn give<A: AsRef<[u8]>>(&mut self, command: &[A]) {
        self.send(&encoded(command));
    }

    /// The next reply; `None` at the end of the connection.
    pub fn try_reply(&mut self) -> Option<Reply> {
        let mut line = Vec::new();
        let n = self.0.read_until(b'\n', &mut line).unwrap_or_else(|e| match e.kind() {
            std::io::ErrorKind::ConnectionReset => 0,
            _ => panic!("no reply: {e}"),
        });
        if n == 0 || !line.ends_with(b"\r\n") {
            return None;
        }
        let kind = char::from(line[0]);
        let text = String::from_utf8_lossy(&line[1..line.len() - 2]).into_owned();
        let length = || text.parse::<i64>().expect("a length");
        Some(match kind {
            '$' | '=' if length() < 0 => Reply::Bulk(kind, None),
            '$' | '=' => {
                let mut bytes = vec![0; length() as usize + 2];
                self.0.read_exact(&mut bytes).ok()?;
                bytes.truncate(length() as usize);
                Reply::Bulk(kind, Some(bytes))
            }
            '*' | '~' | '>' | '%' if length() < 0 => Reply::Many(kind, None),
            '*' | '~' | '>' | '%' => {
                let count = length() * if kind == '%' { 2 } else { 1 };
                Reply::Many(
                    kind,
                    Some((0..count).map(|_| self.try_reply()).collect::<Option<_>>()?),
                )
            }
            '+' | '-' | ':' | '_' => Reply::Line(kind, text),
            _ => panic!("{kind}{text} is no reply"),
        })
    }

    pub fn reply(&mut self) -> Reply {
        self.try_reply().expect("the connection lives")
    }

    /// Sends one command and waits for its reply.
    pub fn ask<A: AsRef<[u8]>>(&mut self, command: &[A]) -> Reply {
        self.give(command);
        self.reply()
    }

    /// Asserts that the server closes the connection without a further reply.
    pub fn expect_end(&mut self) {
        assert_eq!(self.try_reply(), None);
    }
}

/// Encodes a command in RESP.
pub fn encoded<A: AsRef<[u8]>>(command: &[A]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for word in command {
        let word = word.as_ref();
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// Polls until a condition holds. Panics after the timeout.
pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = std::time::Instant::now();
    while !is() {
        assert!(start.elapsed() < PATIENCE, "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub fn text(path: &Path) -> String {
    path.display().to_string()
}
