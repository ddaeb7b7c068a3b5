//! A server: accepts, a microprocess for each connection, sheds what is too much, and drains.

use std::cell::Cell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use kumihimo_runtime::NoEvents;
use kumihimo_runtime::cancel::{self, Cancelled};
use kumihimo_runtime::park::{self, Wait, Waiter};
use kumihimo_runtime::thread::{self, Thread};
use socket2::SockRef;

use super::memory::Resident;
use super::trouble::{Cause, Failure, Trouble};
use super::{TcpListener, TcpStream, UnixListener, UnixStream, unix};

/// One kind of trouble is told of so often, at most.
const SAY_EVERY: Duration = Duration::from_secs(1);
/// How long to wait when the kernel has nothing to accept with: twice as long each time, ...
const FIRST_PAUSE: Duration = Duration::from_millis(1);
/// ... up to this.
const LONGEST_PAUSE: Duration = Duration::from_millis(256);

/// What several listeners of one server share: limits, the count of connections, and the end.
///
/// ```no_run
/// use kumihimo_io::net::{Server, TcpListener};
/// use std::io::{Read, Write};
/// use std::time::Duration;
/// # use kumihimo_runtime::thread;
///
/// let server = Server::new().connections(10_000).refusal("busy, try again later\n");
/// let listener = TcpListener::bind("127.0.0.1:7000")?;
/// let tally = thread::scope(|s| {
///     s.spawn(|| {
///         thread::sleep(Duration::from_secs(3600)); // or wait for a signal
///         server.drain(Duration::from_secs(10));
///     });
///     server.serve(&listener, |mut stream, _peer| {
///         let mut buffer = [0; 4096];
///         while let Ok(n @ 1..) = stream.read(&mut buffer) {
///             if server.is_draining() || stream.write_all(&buffer[..n]).is_err() { break; }
///         }
///     })
/// })?;
/// println!("{tally:?}");
/// # std::io::Result::Ok(())
/// ```
pub struct Server {
    connections: usize,
    memory: u64,
    refusal: Vec<u8>,
    stack_size: Option<usize>,
    hook: Option<Box<Hook>>,
    /// Connections of all listeners.
    open: AtomicUsize,
    /// `state.until` is there. SeqCst, as the counts of connections: the draining thread sees the
    /// count, or the last connection sees this.
    draining: AtomicBool,
    state: Mutex<State>,
    /// Those inside [`idle`](Server::idle), by their ids.
    idle: Mutex<HashMap<u64, Thread>>,
}

type Hook = dyn Fn(&Trouble) + Send + Sync;

#[derive(Default)]
struct State {
    /// When the draining is over.
    until: Option<Instant>,
    /// Those inside `serve`.
    serving: Vec<Waiter>,
    /// By kind: when it was last told of, and how often it came up since.
    said: [(Option<Instant>, u64); Cause::COUNT],
}

/// What became of the connections of one call of [`Server::serve`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Ended by themselves, or were [idle](Server::idle) when the draining began.
    pub served: u64,
    /// Ended by a panic; nobody else noticed.
    pub panicked: u64,
    /// Still under way when the time to drain was over, and cancelled.
    pub cancelled: u64,
    /// Closed at once, since they were too many.
    pub refused: u64,
}

impl Default for Server {
    fn default() -> Server {
        Server::new()
    }
}

/// Settings.
impl Server {
    /// Without limits. What goes wrong is said on standard error.
    #[must_use]
    pub fn new() -> Server {
        Server {
            connections: usize::MAX,
            memory: u64::MAX,
            refusal: Vec::new(),
            stack_size: None,
            hook: None,
            open: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            state: Mutex::default(),
            idle: Mutex::default(),
        }
    }

    /// Most connections open at a time, over all listeners; further ones are refused. Leave some
    /// descriptors of `ulimit -n` for the rest.
    #[must_use]
    pub fn connections(mut self, most: usize) -> Server {
        self.connections = most;
        self
    }

    /// Most memory that the process may have resident, in bytes, for a further connection to be
    /// accepted. What the connections that are open do with theirs is not bounded by this: leave
    /// room below the limit of the machine or the control group.
    #[must_use]
    pub fn memory(mut self, most: u64) -> Server {
        self.memory = most;
        self
    }

    /// Sent to those that are refused, before they are closed, if it fits the socket's buffer.
    /// Default: nothing.
    #[must_use]
    pub fn refusal(mut self, message: impl Into<Vec<u8>>) -> Server {
        self.refusal = message.into();
        self
    }

    /// Usable stack of a connection's microprocess, in bytes. Default: the runtime's.
    #[must_use]
    pub fn stack_size(mut self, bytes: usize) -> Server {
        self.stack_size = Some(bytes);
        self
    }

    /// Told of what goes wrong, of each cause once a second at most, instead of standard error.
    /// Runs where connections are accepted: none is while it waits.
    #[must_use]
    pub fn on_trouble(mut self, hook: impl Fn(&Trouble) + Send + Sync + 'static) -> Server {
        self.hook = Some(Box::new(hook));
        self
    }
}

impl Server {
    /// Accepts from `listener` and runs `serve` for each connection, in a microprocess of its own,
    /// until the server is [drained](Server::drain). Several listeners: as many microprocesses that
    /// call this. Blocks the caller. A cancellation point: the connections are cancelled with it,
    /// and awaited. After the deadline of an enclosing scope, all is as if drained with no time
    /// left.
    ///
    /// What waits in the backlog when the draining begins stays there: for another holder of the
    /// listener, or reset when it is closed. A connection whose `serve` panics is closed and
    /// counted. One that never comes to a cancellation point is waited for.
    ///
    /// # Errors
    /// What accept(2) says of a listener that is none (any more), when the connections under way
    /// have ended, or are cancelled by `drain`. `Unsupported` if there is no procfs to learn of
    /// memory.
    pub fn serve<L, F>(&self, listener: &L, serve: F) -> io::Result<Tally>
    where
        L: Listener,
        F: Fn(L::Stream, L::Addr) + Send + Sync,
    {
        if self.is_draining() {
            return Ok(Tally::default());
        }
        let resident = (self.memory != u64::MAX).then(Resident::open).transpose()?;
        let here = Here {
            open: AtomicUsize::new(0),
            over: AtomicBool::new(false),
            tally: Counts::default(),
            waiter: park::current(),
        };
        let _enrolled = self.enrol(&here.waiter);
        let accepted = thread::scope(|s| {
            s.tolerate_panics();
            let acceptor = s.spawn(|| {
                let _over = Over(&here);
                self.accept(listener, resident.as_ref(), &here, |connection, stream, addr| {
                    let mut builder = thread::Builder::new().name("connection".to_owned());
                    if let Some(bytes) = self.stack_size {
                        builder = builder.stack_size(bytes);
                    }
                    let serve = &serve;
                    builder
                        .spawn_scoped(s, move || {
                            let mut connection = connection;
                            serve(stream, addr);
                            connection.is_whole = true;
                        })
                        .map(drop)
                })
            });
            while !self.is_draining() && !here.over.load(Ordering::Acquire) {
                here.wait(None);
            }
            acceptor.cancel();
            let accepted = acceptor.join().unwrap_or_else(|payload| {
                if payload.is::<Cancelled>() { Ok(()) } else { std::panic::resume_unwind(payload) }
            });
            while here.open.load(Ordering::SeqCst) != 0 {
                let until = cancel::earlier(self.until(), cancel::deadline());
                if until.is_some_and(|until| Instant::now() >= until) {
                    s.cancel();
                    break;
                }
                here.wait(until);
            }
            accepted
        });
        accepted.map(|()| here.tally())
    }

    /// Has every [`serve`](Server::serve) of this server come to its end: nothing is accepted any
    /// more, the connections under way have `time` to end, those that have not are cancelled, those
    /// that are [idle](Server::idle) at once. Returns at once. Called again: the earlier end
    /// counts. A server that was drained serves no more.
    pub fn drain(&self, time: Duration) {
        // Beyond the clock's range: no end.
        let until = Instant::now().checked_add(time);
        self.with(|state| {
            state.until = cancel::earlier(state.until, until);
            self.draining.store(true, Ordering::SeqCst);
            state.serving.iter().for_each(Waiter::wake);
        });
        for connection in self.with_idle(std::mem::take).into_values() {
            connection.cancel();
        }
    }

    /// Whether it drains, or has been drained: a connection that could go on for ever had better
    /// end when it has finished what it does.
    pub fn is_draining(&self) -> bool {
        self.draining.load(Ordering::SeqCst)
    }

    /// Runs `wait` for a connection that has nothing to do until it returns: it waits for the next
    /// request, say. Draining then does not wait for it: it is cancelled at once.
    ///
    /// ```no_run
    /// # use std::io::{BufRead, BufReader};
    /// # let server = kumihimo_io::net::Server::new();
    /// # let stream = kumihimo_io::net::TcpStream::connect("127.0.0.1:1")?;
    /// # let (mut reader, mut line) = (BufReader::new(stream), String::new());
    /// // The next request begins whenever the client likes; once it has begun, it is answered.
    /// while !server.idle(|| reader.fill_buf())?.is_empty() {
    ///     reader.read_line(&mut line)?;
    /// }
    /// # std::io::Result::Ok(())
    /// ```
    pub fn idle<R>(&self, wait: impl FnOnce() -> R) -> R {
        struct Busy<'a>(&'a Server, u64);
        impl Drop for Busy<'_> {
            fn drop(&mut self) {
                self.0.with_idle(|idle| idle.remove(&self.1));
                CUT_IDLE.set(std::thread::panicking() && cancel::requested());
            }
        }
        let me = thread::current();
        let id = me.id().as_u64().get();
        self.with_idle(|idle| idle.insert(id, me.clone()));
        let _busy = Busy(self, id);
        // The draining thread has either found this one, or is found here.
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

    /// Connections open now, over all listeners.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    fn until(&self) -> Option<Instant> {
        self.with(|state| state.until)
    }

    fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let _quiet = NoEvents::new();
        f(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn enrol<'a>(&'a self, waiter: &'a Waiter) -> impl Drop + use<'a> {
        struct Strike<'a>(&'a Server, &'a Waiter);
        impl Drop for Strike<'_> {
            fn drop(&mut self) {
                self.0.with(|state| {
                    if let Some(at) = state.serving.iter().position(|w| w == self.1) {
                        state.serving.swap_remove(at);
                    }
                });
            }
        }
        self.with(|state| state.serving.push(waiter.clone()));
        Strike(self, waiter)
    }

    /// Accepts until something ends it.
    fn accept<'a, L: Listener>(
        &'a self,
        listener: &L,
        resident: Option<&Resident>,
        here: &'a Here,
        begin: impl Fn(Connection<'a>, L::Stream, L::Addr) -> io::Result<()>,
    ) -> io::Result<()> {
        // Given up to accept, and refuse, one when there is no other descriptor left.
        let mut reserve = listener.as_fd().try_clone_to_owned().ok();
        let mut pause = FIRST_PAUSE;
        loop {
            let e = match listener.accept() {
                Ok((stream, addr)) => {
                    pause = FIRST_PAUSE;
                    if reserve.is_none() {
                        reserve = listener.as_fd().try_clone_to_owned().ok();
                    }
                    match self.admit(resident, here) {
                        Ok(connection) => {
                            if let Err(e) = begin(connection, stream, addr) {
                                here.tally.refused.fetch_add(1, Ordering::Relaxed);
                                self.say(listener, Cause::Microprocesses, e.to_string());
                            }
                        }
                        Err((cause, detail)) => {
                            self.refuse(&stream, here);
                            // Closed before the next one is looked at.
                            drop(stream);
                            self.say(listener, cause, detail);
                        }
                    }
                    continue;
                }
                Err(e) => e,
            };
            match Failure::of(&e) {
                Failure::OfOne => continue,
                Failure::Descriptors => {
                    self.refuse_one(listener, &mut reserve, here);
                    self.say(listener, Cause::Descriptors, e.to_string());
                }
                Failure::Memory => self.say(listener, Cause::Kernel, e.to_string()),
                Failure::Deadline => return Ok(()),
                Failure::Final => return Err(e),
            }
            thread::sleep(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Counts a connection as open, unless that is too much.
    fn admit<'a>(
        &'a self,
        resident: Option<&Resident>,
        here: &'a Here,
    ) -> Result<Connection<'a>, (Cause, String)> {
        let now = resident.map_or(0, Resident::bytes);
        if now > self.memory {
            let text = format!("{} MiB are resident, {} allowed", now >> 20, self.memory >> 20);
            return Err((Cause::Memory, text));
        }
        self.open
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| {
                (n < self.connections).then_some(n + 1)
            })
            .map_err(|n| (Cause::Connections, format!("{n} are open")))?;
        here.open.fetch_add(1, Ordering::SeqCst);
        Ok(Connection { server: self, here, is_whole: false })
    }

    /// Says no. Waits for nothing.
    fn refuse(&self, stream: &impl AsFd, here: &Here) {
        here.tally.refused.fetch_add(1, Ordering::Relaxed);
        let socket = SockRef::from(stream);
        // Whatever fails: it is being closed.
        let _ = socket.send_with_flags(&self.refusal, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL);
        let _ = socket.shutdown(std::net::Shutdown::Write);
        // Closed with something unread it would send a reset, which may take the message with it.
        let mut unread = [MaybeUninit::uninit(); 4096];
        for _ in 0..16 {
            if !matches!(socket.recv_with_flags(&mut unread, libc::MSG_DONTWAIT), Ok(4096)) {
                break;
            }
        }
    }

    /// By the reserve: a waiting client gets an answer instead of nothing. If another thread is
    /// faster, the client goes on waiting.
    fn refuse_one<L: Listener>(&self, listener: &L, reserve: &mut Option<OwnedFd>, here: &Here) {
        if reserve.take().is_some()
            // Does not wait: a listener of ours has O_NONBLOCK.
            && let Ok((stream, _)) = SockRef::from(listener).accept()
        {
            self.refuse(&stream, here);
            *reserve = put_over(stream.into(), listener.as_fd());
        }
        if reserve.is_none() {
            *reserve = listener.as_fd().try_clone_to_owned().ok();
        }
    }

    fn say<L: Listener>(&self, listener: &L, cause: Cause, detail: String) {
        let count = self.with(|state| {
            let (last, count) = &mut state.said[cause as usize];
            *count += 1;
            let now = Instant::now();
            if last.is_some_and(|last| now < last + SAY_EVERY) {
                return 0;
            }
            *last = Some(now);
            std::mem::take(count)
        });
        if count == 0 {
            return;
        }
        let trouble = Trouble { listener: listener.address(), cause, count, detail };
        match &self.hook {
            Some(hook) => hook(&trouble),
            None => eprintln!("kumihimo: {trouble}"),
        }
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

/// One call of `serve`. In the frame of that, which waits for all that refer to it.
struct Here {
    open: AtomicUsize,
    /// Nothing is accepted any more.
    over: AtomicBool,
    tally: Counts,
    waiter: Waiter,
}

#[derive(Default)]
struct Counts {
    served: AtomicU64,
    panicked: AtomicU64,
    cancelled: AtomicU64,
    refused: AtomicU64,
}

impl Here {
    /// Until woken, or for no reason. A cancellation point.
    fn wait(&self, until: Option<Instant>) {
        cancel::point();
        park::park(Wait::Scope, until);
        cancel::point();
    }

    fn tally(&self) -> Tally {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let Counts { served, panicked, cancelled, refused } = &self.tally;
        Tally {
            served: get(served),
            panicked: get(panicked),
            cancelled: get(cancelled),
            refused: get(refused),
        }
    }
}

/// The acceptor's end is something to wait for.
struct Over<'a>(&'a Here);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Release);
        self.0.waiter.wake();
    }
}

thread_local! {
    /// The microprocess, a connection's, unwinds out of [`Server::idle`].
    static CUT_IDLE: Cell<bool> = const { Cell::new(false) };
}

/// One that is open: counted as long as it lives.
struct Connection<'a> {
    server: &'a Server,
    here: &'a Here,
    /// Its closure has returned.
    is_whole: bool,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let counts = &self.here.tally;
        let count = match (self.is_whole, std::thread::panicking(), cancel::requested()) {
            (true, ..) => Some(&counts.served),
            (_, true, true) if CUT_IDLE.get() => Some(&counts.served),
            (_, true, true) => Some(&counts.cancelled),
            (_, true, false) => Some(&counts.panicked),
            // It could not begin.
            (_, false, _) => None,
        };
        if let Some(count) = count {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.server.open.fetch_sub(1, Ordering::Relaxed);
        if self.here.open.fetch_sub(1, Ordering::SeqCst) == 1 && self.server.is_draining() {
            self.here.waiter.wake();
        }
    }
}

/// What a [`Server`] accepts from: [`TcpListener`] or [`UnixListener`].
pub trait Listener: AsFd + Sync + sealed::Sealed {
    /// A connection.
    type Stream: AsFd + Send;
    /// Where it comes from.
    type Addr: Send;
    #[doc(hidden)]
    fn accept(&self) -> io::Result<(Self::Stream, Self::Addr)>;
    #[doc(hidden)]
    fn address(&self) -> String;
}

mod sealed {
    /// Prevents implementations outside of this crate.
    pub trait Sealed {}
}

impl sealed::Sealed for TcpListener {}
impl Listener for TcpListener {
    type Stream = TcpStream;
    type Addr = std::net::SocketAddr;
    fn accept(&self) -> io::Result<(TcpStream, Self::Addr)> {
        self.accept()
    }
    fn address(&self) -> String {
        self.local_addr().map_or_else(|e| e.to_string(), |addr| addr.to_string())
    }
}

impl sealed::Sealed for UnixListener {}
impl Listener for UnixListener {
    type Stream = UnixStream;
    type Addr = unix::SocketAddr;
    fn accept(&self) -> io::Result<(UnixStream, Self::Addr)> {
        self.accept()
    }
    fn address(&self) -> String {
        self.local_addr().map_or_else(|e| e.to_string(), |addr| format!("{addr:?}"))
    }
}

/// Closes `old`, and has its number stand for what `new` stands for: in between nobody can take it,
/// as they could if one were closed and the other opened.
fn put_over(old: OwnedFd, new: BorrowedFd<'_>) -> Option<OwnedFd> {
    // SAFETY: no pointers; both are open, and `old` owns its number before and after.
    let number = unsafe { libc::dup3(new.as_raw_fd(), old.as_raw_fd(), libc::O_CLOEXEC) };
    (number >= 0).then_some(old)
}
