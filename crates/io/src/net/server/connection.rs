//! Accounting of the connections of a server, and of one [`Server::serve`](super::Server::serve)
//! call.

use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use kumihimo_runtime::cancel;
use kumihimo_runtime::park::{self, Wait, Waiter};

/// Load and shutdown state that all `serve` calls of one server share.
#[derive(Default)]
pub(super) struct Load {
    /// Open connections of all listeners.
    pub(super) open: AtomicUsize,
    /// Whether an end of draining is set. SeqCst, like the counts of connections: either the
    /// draining thread sees the count, or the last connection sees this flag.
    pub(super) draining: AtomicBool,
}

/// Outcomes of the connections of one [`Server::serve`](super::Server::serve) call.
///
/// # Examples
///
/// ```
/// use kumihimo::net::{Server, Tally, TcpListener, TcpStream};
/// # use kumihimo::thread;
/// # use std::io::Read;
/// # use std::time::Duration;
///
/// let server = Server::new();
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// # let addr = listener.local_addr()?;
/// let Tally { served, cancelled, .. } = thread::scope(|s| {
///     let serving = s.spawn(|| server.serve(&listener, |_stream, _peer| {}));
///     for _ in 0..3 {
///         assert_eq!(TcpStream::connect(addr)?.read(&mut [0])?, 0);
///     }
///     server.drain(Duration::from_secs(10));
///     serving.join().unwrap()
/// })?;
/// assert_eq!((served, cancelled), (3, 0));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Tally {
    /// Connections that ended by themselves, or were [idle](super::Server::idle) when draining
    /// began.
    pub served: u64,
    /// Connections that ended by a panic. The others are unaffected.
    pub panicked: u64,
    /// Connections cancelled because they were still active when the time to drain had passed.
    pub cancelled: u64,
    /// Connections closed at once because a limit was reached.
    pub refused: u64,
}

/// One call of `serve`. Lives in the frame of that call, which outlives every reference to it.
pub(super) struct ServeCall {
    pub(super) open: AtomicUsize,
    /// Nothing is accepted any more.
    pub(super) ended: AtomicBool,
    pub(super) tally: Counts,
    pub(super) waiter: Waiter,
}

/// The counters behind a [`Tally`].
#[derive(Default)]
pub(super) struct Counts {
    served: AtomicU64,
    panicked: AtomicU64,
    cancelled: AtomicU64,
    pub(super) refused: AtomicU64,
}

impl ServeCall {
    pub(super) fn new() -> ServeCall {
        ServeCall {
            open: AtomicUsize::new(0),
            ended: AtomicBool::new(false),
            tally: Counts::default(),
            waiter: park::current(),
        }
    }

    /// Parks until woken or until `until`; may return spuriously. A cancellation point.
    pub(super) fn wait(&self, until: Option<Instant>) {
        cancel::point();
        park::park(Wait::Scope(0), until);
        cancel::point();
    }

    pub(super) fn tally(&self) -> Tally {
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

/// Wakes the serving thread when the accept loop ends, also by a panic.
pub(super) struct AcceptGuard<'a>(pub(super) &'a ServeCall);

impl Drop for AcceptGuard<'_> {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
        self.0.waiter.wake();
    }
}

thread_local! {
    /// Whether this connection's microprocess unwinds out of [`Server::idle`](super::Server::idle).
    pub(super) static UNWINDS_FROM_IDLE: Cell<bool> = const { Cell::new(false) };
}

/// An open connection, counted as open for as long as this value lives.
pub(super) struct Connection<'a> {
    pub(super) load: &'a Load,
    pub(super) call: &'a ServeCall,
    /// Whether the connection's closure has returned.
    pub(super) is_complete: bool,
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let counts = &self.call.tally;
        let count = match (self.is_complete, std::thread::panicking(), cancel::requested()) {
            (true, ..) => Some(&counts.served),
            (_, true, true) if UNWINDS_FROM_IDLE.get() => Some(&counts.served),
            (_, true, true) => Some(&counts.cancelled),
            (_, true, false) => Some(&counts.panicked),
            // The microprocess could not start.
            (_, false, _) => None,
        };
        if let Some(count) = count {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.load.open.fetch_sub(1, Ordering::Relaxed);
        if self.call.open.fetch_sub(1, Ordering::SeqCst) == 1
            && self.load.draining.load(Ordering::SeqCst)
        {
            self.call.waiter.wake();
        }
    }
}
