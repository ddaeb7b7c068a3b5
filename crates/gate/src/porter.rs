//! The porter: one kernel thread of the process, `kumi-gates`, at the door of all its gates and at
//! the end of all its links.
//!
//! It lets callers in, shakes hands, hears rings, receives descriptors, and notices that the other
//! side of a link has ended. It runs no microprocess, takes no signals, and waits for nobody: a
//! caller has 5 s for its hello, and what does not follow the protocol is cut. It begins with the
//! first gate or link and ends with the last.

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
use kumihimo_runtime::{Locked, lock, remote_wake};
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::hello::{Hello, Seat, Size};
use crate::knock::{self, Knocked};
use crate::link::{Line, Link, Peer, inode};
use crate::{Error, ErrorKind};

mod round;
#[cfg(test)]
mod tests;

/// In place of a user: every user. No user has this number.
pub(crate) const EVERYBODY: u32 = u32::MAX;

/// For what the upper half does when it is told something.
const STACK: usize = 256 << 10;

/// Numbers of what is waited for; those of callers and links come after.
const BELL: u64 = 0;
const LISTENER: u64 = 1;
const FIRST: u64 = 2;

/// What a gate does with a new client.
pub(crate) trait Door: Send + Sync {
    /// A caller whose user may come in. On the porter's kernel thread, with no lock held: it does
    /// not block; a panic is told to the caller.
    ///
    /// # Errors
    /// Told to the caller as it is.
    fn admits(&self, peer: Peer, hello: &Hello) -> Result<Admitted, Error>;
}

/// What an admitted caller gets.
pub(crate) struct Admitted {
    pub(crate) size: Size,
    pub(crate) seat: Option<Seat>,
    /// The memory of the lane, sealed.
    pub(crate) lane: OwnedFd,
    /// Called once the caller has been told, with this side's hold of the link; dropped if the
    /// caller is gone by then. On the porter's kernel thread.
    pub(crate) opened: Box<dyn FnOnce(Link) -> Arc<dyn End> + Send>,
}

/// What has to be known about a link. All is called on the porter's kernel thread, with no lock
/// held, one at a time; it does not block. A panic ends the link.
pub(crate) trait End: Send + Sync {
    /// The other side rings: look at the lane. One call may stand for several rings.
    fn rang(&self);
    /// The other side passes memory, unchecked: size and seals are its word.
    fn region(&self, id: u64, fd: OwnedFd, length: u64);
    /// The other side will not use that memory any more.
    fn forgotten(&self, id: u64);
    /// The link has ended, by either side: what the other side said, `Gone` or `Malformed`. Called
    /// once and last.
    fn gone(&self, why: Error);
}

struct Served {
    door: Arc<dyn Door>,
    /// Beside the owner of the run-time directory and root.
    allowed: Arc<[u32]>,
}

/// A link, as the porter knows it.
#[derive(Clone)]
struct Entry {
    line: Arc<Line>,
    end: Arc<dyn End>,
}

/// What the kernel thread waits with.
struct Running {
    epoll: Kept,
    bell: Kept,
}

#[derive(Default)]
struct State {
    /// While a gate is served. Never kept by anybody else when the last gate goes: its socket is
    /// removed when this is dropped.
    gates: Option<Arc<Gates>>,
    doors: HashMap<String, Served>,
    links: HashMap<u64, Entry>,
    running: Option<Arc<Running>>,
    last_refused: Option<(Peer, Error)>,
}

impl State {
    /// The kernel thread, if there is one, sees whether there is anything left to do.
    fn look_again(&self) {
        if let Some(running) = &self.running {
            let _ = rustix::io::write(&running.bell, &1_u64.to_ne_bytes());
        }
    }
}

/// See the [module](self).
pub(crate) struct Porter {
    state: Mutex<State>,
    descriptors: Arc<Descriptors>,
    next: AtomicU64,
    refused: AtomicU64,
}

impl std::fmt::Debug for Serving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Serving").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A gate that is served, until it is dropped: then nobody finds it any more. Links that are there
/// stay.
pub(crate) struct Serving {
    porter: Arc<Porter>,
    name: String,
}

static OF_PROCESS: OnceLock<Arc<Porter>> = OnceLock::new();
static IN_CHILD: AtomicBool = AtomicBool::new(false);

/// Whether this is a fork's child of a process with gates: all that it has of them is its parent's,
/// whose lanes it must not write to, and whose locks may be held by kernel threads that are not
/// there.
pub(crate) fn is_child() -> bool {
    IN_CHILD.load(Ordering::Relaxed)
}

/// What a fork's child is told.
pub(crate) fn of_parent() -> Error {
    let text =
        "this process is a fork's child, whose gates are its parent's: execute a program first";
    Error::new(ErrorKind::Io, text)
}

impl Porter {
    pub(crate) fn new() -> Arc<Porter> {
        Arc::new(Porter {
            state: Mutex::default(),
            descriptors: Descriptors::new(),
            next: AtomicU64::new(FIRST),
            refused: AtomicU64::new(0),
        })
    }

    /// The one of this process. In a fork's child all that it had is closed, and it does nothing
    /// more.
    pub(crate) fn of_process() -> &'static Arc<Porter> {
        extern "C" fn in_child() {
            IN_CHILD.store(true, Ordering::Relaxed);
            if let Some(porter) = OF_PROCESS.get() {
                porter.forget_in_child();
            }
        }
        static WATCHED: AtomicBool = AtomicBool::new(false);
        if !WATCHED.swap(true, Ordering::Relaxed) {
            // SAFETY: the handler closes descriptors whose numbers it reads from atomics.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
        OF_PROCESS.get_or_init(Porter::new)
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
    pub(crate) fn serve(
        self: &Arc<Porter>,
        number: &Arc<Number>,
        name: &str,
        allowed: &[u32],
        door: Arc<dyn Door>,
    ) -> Result<Serving, Error> {
        check_name(name)?;
        self.is_of_this_process()?;
        let mut state = self.lock();
        if state.doors.contains_key(name) {
            let text = format!("gate {name:?} is served by this process already");
            return Err(Error::new(ErrorKind::InUse, text));
        }
        // Before others can find it.
        state.doors.insert(name.to_owned(), Served { door, allowed: allowed.into() });
        // From here on it goes again when anything fails.
        let serving = Serving { porter: self.clone(), name: name.to_owned() };
        let begun = self.open(&mut state, number, !allowed.is_empty());
        drop(state);
        begun?.bind(name)?;
        Ok(serving)
    }

    /// The listener, which is at work.
    fn open(
        self: &Arc<Porter>,
        state: &mut State,
        number: &Arc<Number>,
        others: bool,
    ) -> Result<Arc<Gates>, Error> {
        let running = self.running(state)?;
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

    /// Finds a gate and shakes hands. Blocks the kernel thread, for `within` at most.
    ///
    /// # Errors
    /// See [`knock::knock`].
    pub(crate) fn knock(
        &self,
        machine: &Machine,
        hello: &Hello,
        within: Duration,
    ) -> Result<Knocked, Error> {
        check_name(&hello.name)?;
        self.is_of_this_process()?;
        knock::knock(machine, &self.descriptors, hello, within)
    }

    /// Begins the link whose other side has let us in: `opened` is given this side's hold of it,
    /// and returns the receiver of its notifications.
    ///
    /// # Errors
    /// `Exhausted`, `Io`: no kernel thread, no descriptors. The receiver is dropped without a
    /// notification.
    pub(crate) fn link(
        self: &Arc<Porter>,
        knocked: Knocked,
        opened: impl FnOnce(Link) -> Arc<dyn End>,
    ) -> Result<(), Error> {
        self.is_of_this_process()?;
        let Knocked { peer, socket, .. } = knocked;
        let line = self.line(self.number(), peer, socket);
        let end = opened(Link { line: line.clone() });
        let mut state = self.lock();
        let begun = self.running(&mut state).and_then(|running| {
            // The kernel thread waits for this lock before it looks the link up.
            epoll::add(
                &running.epoll,
                &*line.socket,
                epoll::EventData::new_u64(line.id),
                epoll::EventFlags::IN,
            )
            .map_err(io)
        });
        match begun {
            Ok(()) => drop(state.links.insert(line.id, Entry { line, end })),
            Err(_) => state.look_again(),
        }
        begun
    }

    /// How many callers were refused, and the last of them.
    #[cfg(test)]
    pub(crate) fn refused(&self) -> (u64, Option<(Peer, Error)>) {
        (self.refused.load(Ordering::Relaxed), self.lock().last_refused.clone())
    }

    fn line(&self, id: u64, peer: Peer, socket: Kept) -> Arc<Line> {
        let (closed, descriptors, inode) =
            (AtomicBool::new(false), self.descriptors.clone(), inode(&socket));
        Arc::new(Line { id, peer, socket: ManuallyDrop::new(socket), closed, descriptors, inode })
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn lock(&self) -> Locked<'_, State> {
        lock(&self.state)
    }

    fn is_of_this_process(&self) -> Result<(), Error> {
        if self.descriptors.are_forgotten() {
            return Err(of_parent());
        }
        Ok(())
    }

    /// The kernel thread, which is started if it is not there.
    fn running(self: &Arc<Porter>, state: &mut State) -> Result<Arc<Running>, Error> {
        if let Some(running) = &state.running {
            return Ok(running.clone());
        }
        let epoll =
            Kept::new(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io)?, &self.descriptors);
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io)?;
        let bell = Kept::new(bell, &self.descriptors);
        epoll::add(&epoll, &bell, epoll::EventData::new_u64(BELL), epoll::EventFlags::IN)
            .map_err(io)?;
        let running = Arc::new(Running { epoll, bell });
        let (porter, its) = (self.clone(), running.clone());
        // The new thread has its creator's mask from its first instruction on.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let begun = std::thread::Builder::new().name("kumi-gates".into()).stack_size(STACK).spawn(
            move || {
                remote_wake::begin_on_all_cores();
                round::Rounds::new(porter, its).run();
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

    /// Whether there is nothing left to do. Then the next beginning link starts a new kernel
    /// thread.
    fn ends(&self) -> bool {
        let mut state = self.lock();
        let ends = state.doors.is_empty() && state.links.is_empty();
        if ends {
            state.running = None;
        }
        ends
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        if self.porter.descriptors.are_forgotten() {
            return;
        }
        let gates = self.porter.lock().gates.clone();
        // Found no more before it is refused. The listener stays meanwhile, since this gate is
        // there.
        if let Some(gates) = gates {
            let _ = gates.unbind(&self.name);
        }
        let mut state = self.porter.lock();
        let gone = state.doors.remove(&self.name);
        if state.doors.is_empty() {
            if let (Some(gates), Some(running)) = (state.gates.take(), &state.running) {
                let _ = epoll::delete(&running.epoll, &*gates);
            }
            state.look_again();
        } else if gone.is_some_and(|gone| !gone.allowed.is_empty())
            && state.doors.values().all(|served| served.allowed.is_empty())
            && let Some(gates) = &state.gates
        {
            let _ = gates.open_to_others(false);
        }
    }
}

fn io(e: Errno) -> Error {
    Error::of_system("gates of this process", e)
}

/// Runs what the upper half does; its panic is an error.
fn guarded<R>(f: impl FnOnce() -> R) -> Result<R, Error> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|_| {
        Error::new(
            ErrorKind::Panicked,
            "the receiver of a link panicked: see standard error of that process",
        )
    })
}
