//! The gates and links that the link poller serves, as its kernel thread and callers share them.

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use kumihimo_machine::gates::Gates;
use kumihimo_machine::socket::descriptors::{Descriptors, Kept};
use kumihimo_machine::socket::peer_socket::PeerSocket;
use kumihimo_runtime::wakeup::add_to_eventfd;
use kumihimo_runtime::{Locked, lock};

use crate::error::{Error, ErrorKind};
use crate::handshake::record::{Hello, LaneSize, WakeAddress};
use crate::link::fork::forked_child_error;
use crate::link::socket::{Connection, Link, Look, inode};
use crate::options::EVERY_USER;
use crate::wire::peer::Peer;

/// Numbers of the descriptors in the epoll set. Those of clients and links begin at `FIRST`.
pub(super) const WAKEUP: u64 = 0;
pub(super) const LISTENER: u64 = 1;
pub(super) const FIRST: u64 = 2;

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
    ///
    /// # Errors
    /// It is no such memory, or more than the other side may pass. The link is cut.
    fn region_passed(&self, id: u64, fd: OwnedFd, length: u64) -> Result<(), Error>;
    /// The other side no longer uses that memory.
    fn region_forgotten(&self, id: u64);
    /// What had come before a call of [`LinkPoller::look_at`] was received.
    fn received_all(&self) {}
    /// The other side violates the protocol or exceeds a quota, and the link is cut for that.
    fn violated(&self, _why: &Error) {}
    /// The link has ended, by either side: the reason that the other side sent, `Gone` or
    /// `Malformed`. Called once and last.
    fn closed(&self, why: Error);
}

pub(super) struct ServedGate {
    pub(super) admission: Arc<dyn Admission>,
    /// Users with access beside the owner of the run-time directory and root.
    pub(super) allowed: Arc<[u32]>,
}

/// A link that the poller serves.
#[derive(Clone)]
pub(super) struct PolledLink {
    pub(super) connection: Arc<Connection>,
    pub(super) end: Arc<dyn LinkHandler>,
}

/// The descriptors that the kernel thread waits on.
pub(super) struct PollThread {
    pub(super) epoll: Kept,
    pub(super) wakeup: Kept,
}

#[derive(Default)]
pub(super) struct PollerState {
    /// The listener, while a gate is served. No other owner is left when the last gate goes: its
    /// socket is removed when this is dropped.
    pub(super) gates: Option<Arc<Gates>>,
    pub(super) served: HashMap<String, ServedGate>,
    pub(super) links: HashMap<u64, PolledLink>,
    /// Links that are to be looked at.
    pub(super) looked_at: Vec<u64>,
    pub(super) running: Option<Arc<PollThread>>,
    pub(super) last_refused: Option<(Peer, Error)>,
}

impl PollerState {
    /// Wakes the kernel thread, so that it ends if nothing is left to serve.
    pub(super) fn wake_thread(&self) {
        if let Some(running) = &self.running {
            add_to_eventfd(running.wakeup.as_fd());
        }
    }

    /// Whether user `uid` has access to a gate with this list.
    pub(super) fn admits(&self, allowed: &[u32], uid: u32) -> bool {
        uid == 0
            || self.gates.as_ref().is_some_and(|gates| gates.owner() == uid)
            || allowed.contains(&uid)
            || allowed.contains(&EVERY_USER)
    }

    pub(super) fn denied(&self, name: Option<&str>, uid: u32) -> Error {
        let what = name.map_or("the gates".to_owned(), |name| format!("gate {name:?}"));
        let owner = self
            .gates
            .as_ref()
            .map_or(String::new(), |gates| format!(" of user {}", gates.owner()));
        Error::new(
            ErrorKind::NotPermitted,
            format!("{what}{owner} let user {uid} not in: its server has to allow it"),
        )
    }
}

/// The state of the link poller: see the [module](super).
pub(crate) struct LinkPoller {
    pub(super) state: Mutex<PollerState>,
    pub(super) descriptors: Arc<Descriptors>,
    pub(super) next: AtomicU64,
    pub(super) refused: AtomicU64,
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

    /// How many callers were refused, and the last of them.
    #[cfg(test)]
    pub(crate) fn refused(&self) -> (u64, Option<(Peer, Error)>) {
        (self.refused.load(Ordering::Relaxed), self.lock().last_refused.clone())
    }

    pub(super) fn new_connection(
        self: &Arc<LinkPoller>,
        id: u64,
        peer: Peer,
        socket: PeerSocket,
    ) -> Arc<Connection> {
        let poller = Arc::downgrade(self);
        let look = Look(Box::new(move |id| {
            if let Some(poller) = poller.upgrade() {
                poller.look_at(id);
            }
        }));
        let (closed, descriptors, inode) =
            (AtomicBool::new(false), self.descriptors.clone(), inode(&socket));
        Arc::new(Connection {
            id,
            peer,
            socket: ManuallyDrop::new(socket),
            closed,
            descriptors,
            inode,
            look,
        })
    }

    /// Has the kernel thread receive what has come on a link, and report it by
    /// [`LinkHandler::received_all`].
    pub(crate) fn look_at(&self, id: u64) {
        let mut state = self.lock();
        if !state.looked_at.contains(&id) {
            state.looked_at.push(id);
        }
        state.wake_thread();
    }

    pub(super) fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn lock(&self) -> Locked<'_, PollerState> {
        lock(&self.state)
    }

    pub(super) fn check_not_forked(&self) -> Result<(), Error> {
        if self.descriptors.are_forgotten() {
            return Err(forked_child_error());
        }
        Ok(())
    }

    /// Ends the kernel thread if no gate and no link is left. The next one starts a new thread.
    pub(super) fn stop_if_unused(&self) -> bool {
        let mut state = self.lock();
        let ends = state.served.is_empty() && state.links.is_empty();
        if ends {
            state.running = None;
        }
        ends
    }
}

/// Runs a handler's code, and turns its panic into an error.
pub(super) fn catch_panic<R>(f: impl FnOnce() -> R) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|_| {
        Error::new(
            ErrorKind::Panicked,
            "the receiver of a link panicked: see standard error of that process",
        )
    })
}
