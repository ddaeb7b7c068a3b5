//! The running server: start, shutdown, accepting, and the connections.
//!
//! [`Server::start`] replays the append log (`replay.rs`), binds the listeners and starts the
//! microprocesses: one for the log, one for expiry, one for each listener, and one for each
//! accepted connection (`connection.rs`). A connection reads requests, runs them in its session,
//! and writes the replies.
//!
//! This module uses all other modules of the crate, and only the command line uses this module.

pub(crate) mod connection;
pub(crate) mod replay;

use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::time::{Duration, Instant};

use kumihimo::fs::{self, File};
use kumihimo::net::{TcpListener, UnixListener, UnixStream};
use kumihimo::sync::Arc;
use kumihimo::thread::{self, JoinHandle};

use crate::clients::stream::Stream;
use crate::data::key::now;
use crate::log::Log;
use crate::server::{Server, Settings};
use replay::replay;
pub use replay::{Repaired, Replayed, repair};

/// Interval between searches for expired keys. Lookups never return an expired key, so the interval
/// affects memory only.
const EXPIRE_EVERY: Duration = Duration::from_millis(100);
/// Time that clients have to receive their last replies at shutdown.
const GRACE: Duration = Duration::from_secs(5);
/// Pause between attempts to accept while the system lacks resources.
const BACK_OFF: Duration = Duration::from_millis(10);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(1);

/// Reply to a client from another machine while there is no password.
const DENIED: &str = "-DENIED Redis is running in protected mode because protected mode is enabled \
    and no password is set for the default user. In this mode connections are only accepted from \
    the loopback interface. To accept connections from other machines, start the server with \
    --requirepass-file FILE, or with --protected-mode no\r\n";

/// A running server. Dropping this value does not stop the server.
pub struct Running {
    server: Arc<Server>,
    acceptors: Vec<JoinHandle<()>>,
    others: Vec<JoinHandle<()>>,
    /// Result of replaying the append log.
    pub replayed: Option<Replayed>,
}

impl Server {
    /// Replays the log, listens, and serves in microprocesses of its own.
    ///
    /// # Errors
    /// `InvalidInput` without an address to listen on; as bind(2), spawning, and opening and
    /// reading the log. Each message names the address or the file.
    pub fn start(settings: Settings) -> io::Result<Running> {
        if settings.listen.is_none() && settings.unix.is_none() {
            return Err(io::Error::new(ErrorKind::InvalidInput, "nothing to listen to"));
        }
        let server = Arc::new(Server::new(settings));
        let settings = &server.settings;
        let about =
            |what: String| move |e: io::Error| io::Error::new(e.kind(), format!("{what}: {e}"));
        let tcp = settings
            .listen
            .map(|at| TcpListener::bind(at).map_err(about(at.to_string())))
            .transpose()?;
        if let Some(tcp) = &tcp {
            server
                .address
                .get_or_init(|| tcp.local_addr().unwrap_or_else(|_| ([0, 0, 0, 0], 0).into()));
        }
        let mut replayed = None;
        let mut file = None;
        if let Some(path) = &settings.append_log {
            let about = about(path.display().to_string());
            let found = Log::open(path).and_then(|file| Ok((replay(&server, &file, path)?, file)));
            let (found, opened) = found.map_err(about)?;
            server.databases.shared.log.get_or_init(|| Log::new(path, settings.sync));
            file = Some((opened, found.good));
            replayed = Some(found);
        }
        let unix = settings
            .unix
            .as_ref()
            .map(|at| bind_unix(at).map_err(about(at.display().to_string())))
            .transpose()?;
        let mut running = Running {
            server: Arc::clone(&server),
            acceptors: Vec::new(),
            others: Vec::new(),
            replayed,
        };
        if let Some((file, good)) = file {
            running.spawn("kv log", move |server| write_log(server, &file, good))?;
        }
        running.spawn("kv expiry", expire)?;
        let protected = settings.protected && settings.password.is_none();
        if let Some(tcp) = tcp {
            running.accept(move || {
                let (stream, from) = tcp.accept()?;
                stream.set_nodelay(true)?;
                let to = stream.local_addr()?;
                if protected && !from.ip().to_canonical().is_loopback() {
                    // The send buffer of a new socket is empty, so this write does not block.
                    let _ = (&stream).write_all(DENIED.as_bytes());
                    return Err(ErrorKind::ConnectionAborted.into());
                }
                Ok((Stream::Tcp(stream), (from.to_string(), to.to_string())))
            })?;
        }
        if let Some(unix) = unix {
            let name =
                settings.unix.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
            running.accept(move || {
                let (stream, _) = unix.accept()?;
                Ok((Stream::Unix(stream), (format!("{name}:0"), name.clone())))
            })?;
        }
        Ok(running)
    }
}

impl Running {
    fn spawn(&mut self, name: &str, body: impl FnOnce(&Server) + Send + 'static) -> io::Result<()> {
        let server = Arc::clone(&self.server);
        self.others
            .push(thread::Builder::new().name(name.to_owned()).spawn(move || body(&server))?);
        Ok(())
    }

    fn accept(
        &mut self,
        accept: impl Fn() -> io::Result<(Stream, (String, String))> + Send + 'static,
    ) -> io::Result<()> {
        let server = Arc::clone(&self.server);
        let acceptor = thread::Builder::new().name("kv accept".to_owned());
        self.acceptors.push(acceptor.spawn(move || accept_all(&server, accept))?);
        Ok(())
    }

    /// The server's shared state.
    pub fn server(&self) -> &Arc<Server> {
        &self.server
    }

    /// The TCP address on which the server listens.
    pub fn address(&self) -> Option<SocketAddr> {
        self.server.address.get().copied()
    }

    /// Waits for [`Server::stop`] or `SHUTDOWN`, then shuts down: refuses new clients, executes
    /// requests that have arrived, and writes the log to its end.
    ///
    /// # Errors
    /// If part of the log could not be written. That part is lost.
    pub fn wait(self) -> io::Result<()> {
        let server = &self.server;
        while !server.stops_within(Duration::MAX) {}
        for acceptor in self.acceptors {
            acceptor.cancel();
            let _ = acceptor.join();
        }
        if let Some(path) = &server.settings.unix {
            let _ = fs::remove_file(path);
        }
        server.clients.dismiss();
        server.clients.wait(Instant::now() + GRACE);
        let ended = server.databases.shared.log.get().map_or(Ok(()), Log::end);
        for other in self.others {
            let _ = other.join();
        }
        ended
    }
}

/// Listens at `path`. Replaces a socket that an earlier server left there, if no process listens on
/// it.
fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(e) if e.kind() == ErrorKind::AddrInUse => {
            let socket = fs::symlink_metadata(path)?.file_type().is_socket();
            let refused = || {
                UnixStream::connect(path).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
            };
            if !socket || !refused() {
                return Err(e);
            }
            fs::remove_file(path)?;
            UnixListener::bind(path)
        }
        bound => bound,
    }
}

fn write_log(server: &Server, file: &File, good: u64) {
    if let Some(log) = server.databases.shared.log.get() {
        log.write(file, good);
    }
}

fn expire(server: &Server) {
    while !server.stops_within(EXPIRE_EVERY) {
        server.databases.expire(now());
        server.check_resident();
    }
}

/// Accepts connections until it is cancelled.
fn accept_all(server: &Arc<Server>, accept: impl Fn() -> io::Result<(Stream, (String, String))>) {
    let mut back_off = BACK_OFF;
    loop {
        match accept() {
            Ok((stream, addresses)) => {
                if back_off > BACK_OFF {
                    eprintln!("kv: accepting connections again");
                    back_off = BACK_OFF;
                }
                let_in(server, stream, addresses);
            }
            // The client disconnected while it waited in the backlog.
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::ConnectionAborted
                        | ErrorKind::InvalidInput
                        | ErrorKind::NotConnected
                ) => {}
            // Out of descriptors or memory: connected clients must leave first. Waiting ones stay
            // in the backlog.
            Err(e) => {
                if back_off == BACK_OFF {
                    eprintln!("kv: cannot accept: {e}; trying again");
                }
                thread::sleep(back_off);
                back_off = (back_off * 2).min(LONGEST_BACK_OFF);
            }
        }
    }
}

fn let_in(server: &Arc<Server>, stream: Stream, addresses: (String, String)) {
    let stream = Arc::new(stream);
    let refuse = |why: &str| {
        // The send buffer of a new socket is empty, so this write does not block.
        let _ = (&*stream).write_all(format!("-ERR {why}\r\n").as_bytes());
    };
    let Some(here) = server.clients.enter(
        server.settings.max_connections,
        &server.budget,
        &stream,
        addresses,
        now(),
    ) else {
        return refuse("max number of clients reached");
    };
    let theirs = Arc::clone(server);
    let spawned = thread::Builder::new().spawn(move || connection::serve(&theirs, &here.client));
    if let Err(e) = spawned {
        eprintln!("kv: cannot create a microprocess for a client: {e}");
        refuse("max number of clients reached");
    }
}
