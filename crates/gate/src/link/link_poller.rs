//! The link poller: the kernel thread `kumi-gates`, which serves the sockets of all gates and links
//! of the process.
//!
//! It accepts clients, performs the server's half of handshakes, receives rings and descriptors,
//! and detects the end of a link's other side. It runs no microprocess, takes no signals, and
//! blocks only in epoll_wait(2): a client that sends no hello within 5 s is refused, and a link
//! that violates the protocol is closed. The thread begins with the first gate or link and ends
//! with the last.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use kumihimo_arch::signal_mask;
use kumihimo_machine::Machine;
use kumihimo_machine::gates::{Gates, check_name};
use kumihimo_machine::socket::descriptors::Kept;
use kumihimo_machine::space::Number;
use kumihimo_runtime::remote_wake;
use rustix::event::{EventfdFlags, epoll, eventfd};
use rustix::io::Errno;

use crate::error::{Error, ErrorKind};
use crate::handshake::client::{self, Established};
use crate::handshake::record::Hello;
use crate::link::fork;
use crate::link::socket::Link;

mod poll_loop;
mod state;
#[cfg(test)]
mod tests;

pub(crate) use state::{Admission, Admitted, LinkHandler, LinkPoller};
use state::{LISTENER, PollThread, PolledLink, PollerState, ServedGate, WAKEUP};

/// Stack of the kernel thread, which runs admission and link handlers.
const STACK: usize = 256 << 10;

/// Makes a gate findable until it is dropped. Existing links stay.
pub(crate) struct Published {
    poller: Arc<LinkPoller>,
    name: String,
}

impl std::fmt::Debug for Published {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Published").field("name", &self.name).finish_non_exhaustive()
    }
}

static PROCESS_POLLER: OnceLock<Arc<LinkPoller>> = OnceLock::new();

impl LinkPoller {
    /// The poller of this process. In a fork's child it closes all its descriptors and does nothing
    /// more.
    pub(crate) fn of_process() -> &'static Arc<LinkPoller> {
        extern "C" fn in_child() {
            fork::note_forked_child();
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

    /// Begins the link that the other side has accepted. `opened` gets this side's reference to it,
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
        let builder = std::thread::Builder::new().name("kumi-gates".into()).stack_size(STACK);
        let begun = signal_mask::spawn_blocked(builder, move || {
            remote_wake::begin_on_all_cores();
            poll_loop::PollLoop::new(poller, its).run();
        });
        begun.map_err(|e| {
            Error::new(ErrorKind::Exhausted, format!("the kernel thread kumi-gates: {e}"))
        })?;
        state.running = Some(running.clone());
        Ok(running)
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
