//! The link poller: the kernel thread `kumi-gates`, which serves the sockets of all gates and links
//! of the process.
//!
//! It accepts clients, performs the server's half of handshakes, receives rings and descriptors,
//! and detects the end of a link's other side. It runs no microprocess, takes no signals, and
//! blocks only in epoll_wait(2): a client that sends no hello within 5 s is refused, and a link
//! that violates the protocol is closed. The thread begins with the first gate or link and ends
//! with the last.

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use kumihimo_machine::Machine;
use kumihimo_machine::descriptors::{Descriptors, Kept};
use kumihimo_machine::gates::{Gates, check_name};
use kumihimo_machine::space::Number;
use kumihimo_runtime::{Locked, intake, lock};
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};
use crate::handshake::client::{self, Established};
use crate::handshake::record::{Hello, LaneSize, WakeAddress};
use crate::link::socket::{Connection, Link, inode};
use crate::wire::peer::Peer;

mod poll_loop;
#[cfg(test)]
mod tests;

/// Stack of the kernel thread, which runs admission and link handlers.
const STACK: usize = 256 << 10;

/// Numbers of what is waited for; those of callers and links come after.
const WAKEUP: u64 = 0;
const LISTENER: u64 = 1;
const FIRST: u64 = 2;

/// Decides whether a gate admits a new client.
pub(crate) trait Admission: Send + Sync {
    /// Admits or refuses a client whose user has access. Called on the poller's kernel thread with
    /// no lock held; does not block. A panic becomes the client's error.
    ///
    /// # Errors
    /// Sent to the client as it is.
    fn admits(&self, peer: Peer, hello: &Hello) -> Result<Admitted, Error>;
}

/// What an admitted client receives.
pub(crate) struct Admitted {
    pub(crate) size: LaneSize,
    pub(crate) wake_address: Option<WakeAddress>,
    /// The memory of the lane, sealed.
    pub(crate) lane: OwnedFd,
    /// Called after the client has received its welcome, with this side's hold of the link; dropped
    /// if the client has gone. Called on the poller's kernel thread.
    pub(crate) opened: Box<dyn FnOnce(Link) -> Arc<dyn LinkHandler> + Send>,
}

/// Receives the events of a link. Methods are called on the poller's kernel thread, one at a time,
/// with no lock held, and do not block. A panic ends the link.
pub(crate) trait LinkHandler: Send + Sync {
    /// The other side rings: the lane may hold new entries. One call may stand for several rings.
    fn rung(&self);
    /// The other side passes memory. Size and seals are unchecked.
    fn region_passed(&self, id: u64, fd: OwnedFd, length: u64);
    /// The other side no longer uses that memory.
    fn region_forgotten(&self, id: u64);
    /// The link has ended, by either side: the reason that the other side sent, `Gone` or
    /// `Malformed`. Called once and last.
    fn closed(&self, why: Error);
}

struct ServedGate {
    admission: Arc<dyn Admission>,
    /// Beside the owner of the run-time directory and root.
    allowed: Arc<[u32]>,
}

/// A link that the poller serves.
#[derive(Clone)]
struct PolledLink {
    connection: Arc<Connection>,
    end: Arc<dyn LinkHandler>,
}

/// The descriptors that the kernel thread waits on.
struct PollThread {
    epoll: Kept,
    wakeup: Kept,
}

#[derive(Default)]
struct PollerState {
    /// While a gate is served. Never kept by anybody else when the last gate goes: its socket is
    /// removed when this is dropped.
    gates: Option<Arc<Gates>>,
    served: HashMap<String, ServedGate>,
    links: HashMap<u64, PolledLink>,
    running: Option<Arc<PollThread>>,
    last_refused: Option<(Peer, Error)>,
}

impl PollerState {
    /// Wakes the kernel thread, so that it ends if nothing is left to serve.
    fn wake_thread(&self) {
        if let Some(running) = &self.running {
            let _ = rustix::io::write(&running.wakeup, &1_u64.to_ne_bytes());
        }
    }
}

/// See the [module](self).
pub(crate) struct LinkPoller {
    state: Mutex<PollerState>,
    descriptors: Arc<Descriptors>,
    next: AtomicU64,
    refused: AtomicU64,
}

impl std::fmt::Debug for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Published").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Makes a gate findable until it is dropped. Existing links stay.
pub(crate) struct Published {
    poller: Arc<LinkPoller>,
    name: String,
}

static PROCESS_POLLER: OnceLock<Arc<LinkPoller>> = OnceLock::new();
static IN_FORKED_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this process is a fork's child of a process with gates. Its gates are the parent's: it
/// must not write to their lanes, and their locks may be held by kernel threads that it does not
/// have.
pub(crate) fn in_forked_child() -> bool {
    IN_FORKED_CHILD.load(Ordering::Relaxed)
}

/// The error for calls in a fork's child.
pub(crate) fn forked_child_error() -> Error {
    let text =
        "this process is a fork's child, whose gates are its parent's: execute a program first";
    Error::new(ErrorKind::Io, text)
}

impl LinkPoller {
    pub(crate) fn new() -> Arc<LinkPoller> {
        Arc::new(LinkPoller {
            state: Mutex::default(),
            descriptors: Descriptors::new(),
            next: AtomicU64::new(FIRST),
            refused: AtomicU64::new(0),
        })
    }

    /// The poller of this process. In a fork's child it closes all its descriptors and does nothing
    /// more.
    pub(crate) fn of_process() -> &'static Arc<LinkPoller> {
        extern "C" fn in_child() {
            IN_FORKED_CHILD.store(true, Ordering::Relaxed);
            if let Some(poller) = PROCESS_POLLER.get() {
                poller.forget_in_child();
            }
        }
        static WATCHED: AtomicBool = AtomicBool::new(false);
        if !WATCHED.swap(true, Ordering::Relaxed) {
            // SAFETY: the handler closes descriptors whose numbers it reads from atomics.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
        PROCESS_POLLER.get_or_init(LinkPoller::new)
    }

    /// In a fork's child: closes its copies of all descriptors, so that the other sides see the
    /// parent's end. Async-signal-safe.
    pub(crate) fn forget_in_child(&self) {
        self.descriptors.forget_in_child();
    }

    /// Serves gate `name` of the address space `number`, for its user, root, and users `allowed`.
    /// Blocks the kernel thread: some tens of microseconds.
    ///
    /// # Errors
    /// `InUse`, `Exhausted`, `Invalid`; `Io`: the run-time directory cannot be used, a fork's
    /// child.
    pub(crate) fn publish(
        self: &Arc<LinkPoller>,
        number: &Arc<Number>,
        name: &str,
        allowed: &[u32],
        admission: Arc<dyn Admission>,
    ) -> Result<Published, Error> {
        check_name(name)?;
        self.check_not_forked()?;
        let mut state = self.lock();
        if state.served.contains_key(name) {
            let text = format!("gate {name:?} is served by this process already");
            return Err(Error::new(ErrorKind::InUse, text));
        }
        // Before others can find it.
        state.served.insert(name.to_owned(), ServedGate { admission, allowed: allowed.into() });
        // From here on it goes again when anything fails.
        let serving = Published { poller: self.clone(), name: name.to_owned() };
        let begun = self.open_listener(&mut state, number, !allowed.is_empty());
        drop(state);
        begun?.bind(name)?;
        Ok(serving)
    }

    /// The listening socket, in the poller's epoll set.
    fn open_listener(
        self: &Arc<LinkPoller>,
        state: &mut PollerState,
        number: &Arc<Number>,
        others: bool,
    ) -> Result<Arc<Gates>, Error> {
        let running = self.poll_thread(state)?;
        let gates = match &state.gates {
            Some(gates) => gates.clone(),
            None => {
                let gates = Arc::new(Gates::open(number.clone())?);
                epoll::add(
                    &running.epoll,
                    &*gates,
                    epoll::EventData::new_u64(LISTENER),
                    epoll::EventFlags::IN,
                )
                .map_err(io)?;
                state.gates.insert(gates).clone()
            }
        };
        if others {
            gates.open_to_others(true)?;
        }
        Ok(gates)
    }

    /// Finds a gate and performs the client's half of the handshake. Blocks the kernel thread, for
    /// `within` at most.
    ///
    /// # Errors
    /// See [`client::connect`].
    pub(crate) fn connect(
        &self,
        machine: &Machine,
        hello: &Hello,
        within: Duration,
    ) -> Result<Established, Error> {
        check_name(&hello.name)?;
        self.check_not_forked()?;
        client::connect(machine, &self.descriptors, hello, within)
    }

    /// Begins the link whose other side has let us in: `opened` is given this side's hold of it,
    /// and returns the receiver of its notifications.
    ///
    /// # Errors
    /// `Exhausted`, `Io`: no kernel thread, no descriptors. The receiver is dropped without a
    /// notification.
    pub(crate) fn attach(
        self: &Arc<LinkPoller>,
        established: Established,
        opened: impl FnOnce(Link) -> Arc<dyn LinkHandler>,
    ) -> Result<(), Error> {
        self.check_not_forked()?;
        let Established { peer, socket, .. } = established;
        let connection = self.new_connection(self.next_number(), peer, socket);
        let end = opened(Link { connection: connection.clone() });
        let mut state = self.lock();
        let begun = self.poll_thread(&mut state).and_then(|running| {
            // The kernel thread waits for this lock before it looks the link up.
            epoll::add(
                &running.epoll,
                &*connection.socket,
                epoll::EventData::new_u64(connection.id),
                epoll::EventFlags::IN,
            )
            .map_err(io)
        });
        match begun {
            Ok(()) => drop(state.links.insert(connection.id, PolledLink { connection, end })),
            Err(_) => state.wake_thread(),
        }
        begun
    }

    /// How many callers were refused, and the last of them.
    #[cfg(test)]
    pub(crate) fn refused(&self) -> (u64, Option<(Peer, Error)>) {
        (self.refused.load(Ordering::Relaxed), self.lock().last_refused.clone())
    }

    fn new_connection(&self, id: u64, peer: Peer, socket: Kept) -> Arc<Connection> {
        let (closed, descriptors, inode) =
            (AtomicBool::new(false), self.descriptors.clone(), inode(&socket));
        Arc::new(Connection {
            id,
            peer,
            socket: ManuallyDrop::new(socket),
            closed,
            descriptors,
            inode,
        })
    }

    fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> Locked<'_, PollerState> {
        lock(&self.state)
    }

    fn check_not_forked(&self) -> Result<(), Error> {
        if self.descriptors.are_forgotten() {
            return Err(forked_child_error());
        }
        Ok(())
    }

    /// The kernel thread, started if it does not run.
    fn poll_thread(
        self: &Arc<LinkPoller>,
        state: &mut PollerState,
    ) -> Result<Arc<PollThread>, Error> {
        if let Some(running) = &state.running {
            return Ok(running.clone());
        }
        let epoll =
            Kept::new(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io)?, &self.descriptors);
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io)?;
        let wakeup = Kept::new(wakeup, &self.descriptors);
        epoll::add(&epoll, &wakeup, epoll::EventData::new_u64(WAKEUP), epoll::EventFlags::IN)
            .map_err(io)?;
        let running = Arc::new(PollThread { epoll, wakeup });
        let (poller, its) = (self.clone(), running.clone());
        // The new thread has its creator's mask from its first instruction on.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let begun = std::thread::Builder::new().name("kumi-gates".into()).stack_size(STACK).spawn(
            move || {
                intake::begin_on_all_cores();
                poll_loop::PollLoop::new(poller, its).run();
            },
        );
        if let Ok(before) = before {
            let _ = before.thread_set_mask();
        }
        begun.map_err(|e| {
            Error::new(ErrorKind::Exhausted, format!("the kernel thread kumi-gates: {e}"))
        })?;
        state.running = Some(running.clone());
        Ok(running)
    }

    /// Ends the kernel thread if no gate and no link is left. The next one starts a new thread.
    fn stop_if_unused(&self) -> bool {
        let mut state = self.lock();
        let ends = state.served.is_empty() && state.links.is_empty();
        if ends {
            state.running = None;
        }
        ends
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        if self.poller.descriptors.are_forgotten() {
            return;
        }
        let gates = self.poller.lock().gates.clone();
        // Found no more before it is refused. The listener stays meanwhile, since this gate is
        // there.
        if let Some(gates) = gates {
            let _ = gates.unbind(&self.name);
        }
        let mut state = self.poller.lock();
        let gone = state.served.remove(&self.name);
        if state.served.is_empty() {
            if let (Some(gates), Some(running)) = (state.gates.take(), &state.running) {
                let _ = epoll::delete(&running.epoll, &*gates);
            }
            state.wake_thread();
        } else if gone.is_some_and(|gone| !gone.allowed.is_empty())
            && state.served.values().all(|served| served.allowed.is_empty())
            && let Some(gates) = &state.gates
        {
            let _ = gates.open_to_others(false);
        }
    }
}

fn io(e: Errno) -> Error {
    Error::of_system("gates of this process", e)
}

/// Runs a handler's code, and turns its panic into an error.
fn catch_panic<R>(f: impl FnOnce() -> R) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|_| {
        Error::new(
            ErrorKind::Panicked,
            "the receiver of a link panicked: see standard error of that process",
        )
    })
}
