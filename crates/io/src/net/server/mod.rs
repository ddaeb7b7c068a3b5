//! A server: accepts connections, runs a microprocess for each, sheds load, and drains.
//!
//! `accept.rs` is the accept loop: it admits a connection against the limits (`memory.rs` measures
//! resident memory), or refuses it and reports the cause (`trouble.rs`). `connection.rs` counts the
//! connections of one [`Server::serve`] call, which waits for all of them. Data flows from the
//! listener (`listener.rs`) through admission to the caller's closure; the server never reads from
//! or writes to an admitted connection.
//!
//! Uses the sockets of [`net`](super), and microprocesses, scopes and cancellation of the runtime.

mod accept;
mod connection;
mod listener;
mod memory;
mod trouble;

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kumihimo_runtime::NoEvents;
use kumihimo_runtime::cancel::{self, Cancelled};
use kumihimo_runtime::park::Waiter;
use kumihimo_runtime::thread::{self, Thread};

pub use connection::Tally;
use connection::{AcceptGuard, Load, ServeCall, UNWINDS_FROM_IDLE};
pub use listener::Listener;
use memory::Resident;
pub use trouble::{Cause, Trouble};

/// A server: the limits, the count of open connections and the shutdown that its listeners share.
///
/// # Examples
///
/// ```
/// use kumihimo::net::{Server, TcpListener, TcpStream};
/// use kumihimo::thread;
/// use std::io::{Read, Write};
/// use std::time::Duration;
///
/// let server = Server::new().connections(10_000).refusal("busy, try again later\n");
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let addr = listener.local_addr()?;
/// let tally = thread::scope(|s| {
///     let serving = s.spawn(|| {
///         server.serve(&listener, |mut stream, _peer| {
///             let mut buffer = [0; 4096];
///             while let Ok(n @ 1..) = stream.read(&mut buffer) {
///                 if server.is_draining() || stream.write_all(&buffer[..n]).is_err() {
///                     break;
///                 }
///             }
///         })
///     });
///
///     let mut client = TcpStream::connect(addr)?;
///     client.write_all(b"echo")?;
///     let mut reply = [0; 4];
///     client.read_exact(&mut reply)?;
///     assert_eq!(&reply, b"echo");
///     drop(client);
///
///     // A program would do this after a signal.
///     server.drain(Duration::from_secs(10));
///     serving.join().unwrap()
/// })?;
/// assert_eq!((tally.served, tally.refused), (1, 0));
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Server {
    connections: usize,
    memory: u64,
    refusal: Vec<u8>,
    stack_size: Option<usize>,
    hook: Option<Box<Hook>>,
    load: Load,
    state: Mutex<State>,
    /// Connections inside [`idle`](Server::idle), by the IDs of their microprocesses.
    idle: Mutex<HashMap<u64, Thread>>,
}

type Hook = dyn Fn(&Trouble) + Send + Sync;

#[derive(Default)]
struct State {
    /// When draining ends.
    until: Option<Instant>,
    /// Threads inside `serve`.
    serving: Vec<Waiter>,
    /// For each cause: time of the last report, and number of occurrences since.
    reported: [(Option<Instant>, u64); Cause::COUNT],
}

impl Default for Server {
    fn default() -> Server {
        Server::new()
    }
}

/// Settings.
impl Server {
    /// A server without limits, which reports trouble on standard error.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::Server;
    ///
    /// let server = Server::new();
    /// assert_eq!(server.open(), 0);
    /// assert!(!server.is_draining());
    /// ```
    #[must_use]
    pub fn new() -> Server {
        Server {
            connections: usize::MAX,
            memory: u64::MAX,
            refusal: Vec::new(),
            stack_size: None,
            hook: None,
            load: Load::default(),
            state: Mutex::default(),
            idle: Mutex::default(),
        }
    }

    /// Sets the maximum of open connections over all listeners; further ones are refused. Leave
    /// some descriptors of `ulimit -n` for the rest of the program.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{Server, TcpListener, TcpStream};
    /// use kumihimo::thread;
    /// use std::io::{Read, Write};
    /// use std::time::Duration;
    ///
    /// let server = Server::new().connections(1).on_trouble(|_| {});
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let addr = listener.local_addr()?;
    /// let tally = thread::scope(|s| {
    ///     let serving = s.spawn(|| {
    ///         server.serve(&listener, |mut stream, _peer| {
    ///             stream.write_all(b"hello").ok();
    ///             stream.read(&mut [0]).ok();
    ///         })
    ///     });
    ///     let mut first = TcpStream::connect(addr)?;
    ///     first.read_exact(&mut [0; 5])?;
    ///     assert_eq!(TcpStream::connect(addr)?.read(&mut [0])?, 0, "closed at once");
    ///     drop(first);
    ///     server.drain(Duration::from_secs(10));
    ///     serving.join().unwrap()
    /// })?;
    /// assert_eq!((tally.served, tally.refused), (1, 1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn connections(mut self, most: usize) -> Server {
        self.connections = most;
        self
    }

    /// Sets the resident memory of the process, in bytes, above which new connections are refused.
    /// Memory that open connections allocate later is not bounded: leave room below the limit of
    /// the machine or the control group.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{Server, TcpListener, TcpStream};
    /// # use kumihimo::thread;
    /// # use std::io::Read;
    /// # use std::time::Duration;
    ///
    /// // Every process has more than 4 KiB resident, so this server refuses all connections.
    /// let server = Server::new().memory(4096).on_trouble(|_| {});
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let addr = listener.local_addr()?;
    /// let tally = thread::scope(|s| {
    ///     let serving = s.spawn(|| server.serve(&listener, |_stream, _peer| {}));
    ///     assert_eq!(TcpStream::connect(addr)?.read(&mut [0])?, 0);
    ///     server.drain(Duration::ZERO);
    ///     serving.join().unwrap()
    /// })?;
    /// assert_eq!((tally.served, tally.refused), (0, 1));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn memory(mut self, most: u64) -> Server {
        self.memory = most;
        self
    }

    /// Sets the message that a refused connection receives before it is closed, if the socket's
    /// buffer has room for it. Default: none.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{Server, TcpListener, TcpStream};
    /// # use kumihimo::thread;
    /// use std::io::Read;
    /// # use std::time::Duration;
    ///
    /// let server = Server::new().connections(0).refusal("try again later").on_trouble(|_| {});
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let addr = listener.local_addr()?;
    /// thread::scope(|s| {
    ///     let serving = s.spawn(|| server.serve(&listener, |_stream, _peer| {}));
    ///     let mut answer = String::new();
    ///     TcpStream::connect(addr)?.read_to_string(&mut answer)?;
    ///     assert_eq!(answer, "try again later");
    ///     server.drain(Duration::ZERO);
    ///     serving.join().unwrap()
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn refusal(mut self, message: impl Into<Vec<u8>>) -> Server {
        self.refusal = message.into();
        self
    }

    /// Sets the usable stack of a connection's microprocess, in bytes. Default: the runtime's.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{Server, TcpListener, TcpStream};
    /// # use kumihimo::thread;
    /// use std::io::{Read, Write};
    /// # use std::time::Duration;
    ///
    /// let server = Server::new().stack_size(8 << 20);
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let addr = listener.local_addr()?;
    /// thread::scope(|s| {
    ///     let serving = s.spawn(|| {
    ///         server.serve(&listener, |mut stream, _peer| {
    ///             let large = std::hint::black_box([7; 1 << 20]);
    ///             stream.write_all(&large[..1]).ok();
    ///         })
    ///     });
    ///     let mut byte = [0];
    ///     TcpStream::connect(addr)?.read_exact(&mut byte)?;
    ///     assert_eq!(byte, [7]);
    ///     server.drain(Duration::from_secs(10));
    ///     serving.join().unwrap()
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Server {
        self.stack_size = Some(bytes);
        self
    }

    /// Sets the hook that receives reports instead of standard error, each cause at most once a
    /// second. It runs in the accept loop: while it blocks, nothing is accepted.
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
    /// let (sender, reports) = mpsc::channel();
    /// let server = Server::new().connections(0).on_trouble(move |trouble| {
    ///     sender.send((trouble.cause, trouble.to_string())).unwrap();
    /// });
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let addr = listener.local_addr()?;
    /// thread::scope(|s| {
    ///     let serving = s.spawn(|| server.serve(&listener, |_stream, _peer| {}));
    ///     TcpStream::connect(addr)?.read(&mut [0])?;
    ///     server.drain(Duration::ZERO);
    ///     serving.join().unwrap()
    /// })?;
    /// let (cause, text) = reports.recv().unwrap();
    /// assert_eq!(cause, Cause::Connections);
    /// assert!(text.contains("connections refused"));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn on_trouble(mut self, hook: impl Fn(&Trouble) + Send + Sync + 'static) -> Server {
        self.hook = Some(Box::new(hook));
        self
    }
}

impl Server {
    /// Accepts from `listener` and runs `serve` for each connection, in a microprocess of its own,
    /// until the server is [drained](Server::drain). Blocks the microprocess until the last
    /// connection has ended. For several listeners, call it from as many microprocesses.
    ///
    /// A cancellation point: the connections are cancelled with the caller, and awaited. The
    /// deadline of an enclosing scope has the effect of [`drain`](Server::drain) with no time left.
    ///
    /// Connections in the backlog stay there when draining begins: another holder of the listener
    /// accepts them, or closing the listener resets them. A connection whose `serve` panics is
    /// closed and counted. A connection that never reaches a cancellation point is awaited.
    ///
    /// # Errors
    /// Errors of accept(2) about the listener itself, after the active connections have ended or
    /// `drain` has cancelled them. `Unsupported` if [`memory`](Server::memory) is set and procfs is
    /// not mounted.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{Server, UnixListener, UnixStream};
    /// use kumihimo::thread;
    /// use std::io::{Read, Write};
    /// use std::time::Duration;
    ///
    /// # let path = std::env::temp_dir().join(format!("kumihimo-doc-{}", std::process::id()));
    /// let server = Server::new();
    /// let listener = UnixListener::bind(&path)?;
    /// let tally = thread::scope(|s| {
    ///     let serving = s.spawn(|| {
    ///         server.serve(&listener, |mut stream, _peer| {
    ///             stream.write_all(b"hello").ok();
    ///         })
    ///     });
    ///     let mut greeting = String::new();
    ///     UnixStream::connect(&path)?.read_to_string(&mut greeting)?;
    ///     assert_eq!(greeting, "hello");
    ///     server.drain(Duration::from_secs(10));
    ///     serving.join().unwrap()
    /// })?;
    /// assert_eq!(tally.served, 1);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn serve<L, F>(&self, listener: &L, serve: F) -> io::Result<Tally>
    where
        L: Listener,
        F: Fn(L::Stream, L::Addr) + Send + Sync,
    {
        if self.is_draining() {
            return Ok(Tally::default());
        }
        let resident = (self.memory != u64::MAX).then(Resident::open).transpose()?;
        let call = ServeCall::new();
        let _registration = self.register(&call.waiter);
        let accepted = thread::scope(|s| {
            s.tolerate_panics();
            let acceptor = s.spawn(|| {
                let _guard = AcceptGuard(&call);
                self.accept(listener, resident.as_ref(), &call, |connection, stream, addr| {
                    let mut builder = thread::Builder::new().name("connection".to_owned());
                    if let Some(bytes) = self.stack_size {
                        builder = builder.stack_size(bytes);
                    }
                    let serve = &serve;
                    builder
                        .spawn_scoped(s, move || {
                            let mut connection = connection;
                            serve(stream, addr);
                            connection.is_complete = true;
                        })
                        .map(drop)
                })
            });
            while !self.is_draining() && !call.ended.load(Ordering::Acquire) {
                call.wait(None);
            }
            acceptor.cancel();
            let accepted = acceptor.join().unwrap_or_else(|payload| {
                if payload.is::<Cancelled>() { Ok(()) } else { std::panic::resume_unwind(payload) }
            });
            while call.open.load(Ordering::SeqCst) != 0 {
                let until = cancel::earlier(self.until(), cancel::deadline());
                if until.is_some_and(|until| Instant::now() >= until) {
                    s.cancel();
                    break;
                }
                call.wait(until);
            }
            accepted
        });
        accepted.map(|()| call.tally())
    }

    /// Ends every [`serve`](Server::serve) call of this server. Nothing is accepted any more.
    /// Active connections have `time` to end and are then cancelled; [idle](Server::idle) ones are
    /// cancelled at once.
    ///
    /// Returns at once. After several calls the earliest end applies. A drained server cannot serve
    /// again.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{Server, Tally, TcpListener};
    /// use std::time::Duration;
    ///
    /// let server = Server::new();
    /// server.drain(Duration::from_secs(10));
    ///
    /// // It accepts nothing any more, and has no connections to wait for.
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// assert_eq!(server.serve(&listener, |_stream, _peer| {})?, Tally::default());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn drain(&self, time: Duration) {
        // A time beyond the clock's range sets no end.
        let until = Instant::now().checked_add(time);
        self.with(|state| {
            state.until = cancel::earlier(state.until, until);
            self.load.draining.store(true, Ordering::SeqCst);
            state.serving.iter().for_each(Waiter::wake);
        });
        for connection in self.with_idle(std::mem::take).into_values() {
            connection.cancel();
        }
    }

    /// Whether draining has begun. A connection that would otherwise continue for ever should end
    /// after its current request.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::Server;
    /// use std::time::Duration;
    ///
    /// let server = Server::new();
    /// assert!(!server.is_draining());
    /// server.drain(Duration::from_secs(10));
    /// assert!(server.is_draining());
    /// ```
    pub fn is_draining(&self) -> bool {
        self.load.draining.load(Ordering::SeqCst)
    }

    /// Runs `wait` and marks the connection as idle meanwhile, for example between two requests.
    /// Draining cancels idle connections at once instead of waiting for them. Blocks the
    /// microprocess for as long as `wait` does.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{Server, TcpListener, TcpStream};
    /// # use kumihimo::thread;
    /// use std::io::{BufRead, BufReader, Read, Write};
    /// use std::time::Duration;
    ///
    /// let server = Server::new();
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let addr = listener.local_addr()?;
    /// let tally = thread::scope(|s| {
    ///     let serving = s.spawn(|| {
    ///         server.serve(&listener, |stream, _peer| {
    ///             let mut reader = BufReader::new(stream);
    ///             // Idle until the next request begins; a request that has begun is answered.
    ///             while server.idle(|| reader.fill_buf().is_ok_and(|data| !data.is_empty())) {
    ///                 let mut line = String::new();
    ///                 reader.read_line(&mut line).ok();
    ///                 reader.get_mut().write_all(line.as_bytes()).ok();
    ///             }
    ///         })
    ///     });
    ///     let mut client = TcpStream::connect(addr)?;
    ///     client.write_all(b"echo\n")?;
    ///     client.read_exact(&mut [0; 5])?;
    ///     // Does not wait for an hour, since the connection is idle.
    ///     server.drain(Duration::from_secs(3600));
    ///     serving.join().unwrap()
    /// })?;
    /// assert_eq!((tally.served, tally.cancelled), (1, 0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn idle<R>(&self, wait: impl FnOnce() -> R) -> R {
        struct IdleGuard<'a>(&'a Server, u64);
        impl Drop for IdleGuard<'_> {
            fn drop(&mut self) {
                self.0.with_idle(|idle| idle.remove(&self.1));
                UNWINDS_FROM_IDLE.set(std::thread::panicking() && cancel::requested());
            }
        }
        let me = thread::current();
        let id = me.id().as_u64().get();
        self.with_idle(|idle| idle.insert(id, me.clone()));
        let _guard = IdleGuard(self, id);
        // Either the draining thread finds this entry, or this thread sees its flag.
        if self.is_draining() {
            me.cancel();
            cancel::point();
        }
        wait()
    }

    fn with_idle<R>(&self, f: impl FnOnce(&mut HashMap<u64, Thread>) -> R) -> R {
        let _quiet = NoEvents::new();
        f(&mut self.idle.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Number of open connections, over all listeners.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{Server, TcpListener, TcpStream};
    /// # use kumihimo::thread;
    /// # use std::io::{Read, Write};
    /// # use std::time::Duration;
    ///
    /// let server = Server::new();
    /// assert_eq!(server.open(), 0);
    /// # let listener = TcpListener::bind("127.0.0.1:0")?;
    /// # let addr = listener.local_addr()?;
    /// thread::scope(|s| {
    ///     let serving = s.spawn(|| {
    ///         server.serve(&listener, |mut stream, _peer| {
    ///             stream.write_all(b"hello").ok();
    ///             stream.read(&mut [0]).ok();
    ///         })
    ///     });
    ///     let mut client = TcpStream::connect(addr)?;
    ///     client.read_exact(&mut [0; 5])?;
    ///     assert_eq!(server.open(), 1);
    ///     drop(client);
    ///     server.drain(Duration::from_secs(10));
    ///     serving.join().unwrap()
    /// })?;
    /// assert_eq!(server.open(), 0);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open(&self) -> usize {
        self.load.open.load(Ordering::Relaxed)
    }

    fn until(&self) -> Option<Instant> {
        self.with(|state| state.until)
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let _quiet = NoEvents::new();
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds `waiter` to the threads that draining wakes, until the returned guard drops.
    fn register<'a>(&'a self, waiter: &'a Waiter) -> impl Drop + use<'a> {
        struct Registration<'a>(&'a Server, &'a Waiter);
        impl Drop for Registration<'_> {
            fn drop(&mut self) {
                self.0.with(|state| {
                    if let Some(at) = state.serving.iter().position(|w| w == self.1) {
                        state.serving.swap_remove(at);
                    }
                });
            }
        }
        self.with(|state| state.serving.push(waiter.clone()));
        Registration(self, waiter)
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("open", &self.open())
            .field("idle", &self.with_idle(|idle| idle.len()))
            .field("draining", &self.is_draining())
            .finish_non_exhaustive()
    }
}
