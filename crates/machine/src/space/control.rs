//! The control socket of an address space: starts and stops the kernel thread that serves it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kumihimo_arch::signal_mask;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{FileType, Stat, fstat};
use rustix::net::SocketType;

use super::number::Number;
use super::server::Server;
use super::shared::{Limits, Shared};
use crate::directory::{socket, socket_name};
use crate::error::Error;
use crate::handler::ControlHandler;
use crate::protocol::CONTROL_THREAD;
use crate::socket::peer_socket::PeerSocket;

/// Stack size for answers, which take locks and names and unwind stacks. Untouched stack costs no
/// memory.
const STACK: usize = 512 << 10;
/// Number of clients that may wait to be accepted; others are reported as busy.
const BACKLOG: i32 = 128;
/// Time that `drop` waits for the thread. An answer may take a second; a longer one ends on its
/// own.
const LEAVING: Duration = Duration::from_secs(3);

/// The control socket of an address space, and the kernel thread `kumi-control` that serves it.
/// Dropping this value removes the socket and ends the thread. That takes no longer than the answer
/// in progress, and at most 3 s.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    thread: Option<(JoinHandle<()>, Receiver<()>)>,
}

impl Control {
    /// Starts to answer requests. The kernel thread blocks all signals.
    ///
    /// # Errors
    /// Returns [`Error::Directory`] if the directory is full or read-only, or if the socket's path
    /// is too long and there is no /proc. Returns [`Error::Io`] if no descriptor or kernel thread
    /// is available.
    pub fn start(number: Arc<Number>, answer: Weak<dyn ControlHandler>) -> Result<Control, Error> {
        Control::start_within(number, answer, Limits::default())
    }

    /// Starts as [`start`](Control::start) does, with other limits.
    ///
    /// # Errors
    /// Returns the errors of `start`.
    pub fn start_within(
        number: Arc<Number>,
        answer: Weak<dyn ControlHandler>,
        limits: Limits,
    ) -> Result<Control, Error> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::io("control socket"))?;
        let listener = number.directory.keep(socket::listen(
            &number.directory,
            &socket_name(number.number),
            SocketType::STREAM,
            BACKLOG,
        )?);
        let listener = PeerSocket::opaque(listener, number.directory.owner());
        let stop = number.directory.keep(stop);
        let shared = Arc::new(Shared {
            number,
            stop,
            allowed: Mutex::new(Vec::new()),
            refused: AtomicU64::new(0),
        });
        let server = Server::new(shared.clone(), listener, answer, limits);
        let (ends, ended) = mpsc::channel::<()>();
        let run = move || {
            server.run();
            drop(ends);
        };
        // The new thread has its creator's signal mask from its first instruction on.
        let builder = thread::Builder::new().name(CONTROL_THREAD.into()).stack_size(STACK);
        let thread = signal_mask::spawn_blocked(builder, run);
        let thread = thread.map_err(|e| {
            let _ = shared.number.directory.remove_socket(&socket_name(shared.number.number));
            Error::Io("the control kernel thread".into(), e)
        })?;
        Ok(Control { shared, thread: Some((thread, ended)) })
    }

    /// Permits user `uid` to make requests. Users other than root and the directory's owner reach
    /// the socket only if they may search all directories above the run-time directory, so it must
    /// be in `/dev/shm` and not in `$XDG_RUNTIME_DIR`. From then on, other users can see the
    /// directory's numbers.
    ///
    /// # Errors
    /// Returns the error of changing the modes of directory and socket; the user is then not
    /// permitted.
    pub fn allow(&self, uid: u32) -> Result<(), Error> {
        let mut allowed = self.shared.allowed();
        if !allowed.contains(&uid) {
            let number = &self.shared.number;
            number.directory.set_socket_mode(&socket_name(number.number), true)?;
            number.directory.open_to_others()?;
            allowed.push(uid);
        }
        Ok(())
    }

    /// Revokes the permission of user `uid`, from the user's next request on, even on open
    /// connections. Returns `false` if the user was not on the list.
    ///
    /// # Errors
    /// Returns the error of changing the mode of the socket; the permission is revoked
    /// nevertheless.
    pub fn disallow(&self, uid: u32) -> Result<bool, Error> {
        let mut allowed = self.shared.allowed();
        let before = allowed.len();
        allowed.retain(|one| *one != uid);
        if before > 0 && allowed.is_empty() {
            let number = &self.shared.number;
            number.directory.set_socket_mode(&socket_name(number.number), false)?;
        }
        Ok(allowed.len() < before)
    }

    /// Returns the number of refused attempts, as in the metric `kumihimo_control_refused_total`.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.shared.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let Some((thread, ended)) = self.thread.take() else { return };
        let number = &self.shared.number;
        if std::process::id() != number.pid {
            // In the child of a fork, the socket belongs to the parent, and the thread does not
            // exist.
            std::mem::forget((thread, ended));
            return;
        }
        let _ = number.directory.remove_socket(&socket_name(number.number));
        // If the program has closed the eventfd and opened a file in its place, nothing is written.
        let is_anonymous = |file: Stat| FileType::from_raw_mode(file.st_mode) == FileType::Unknown;
        if fstat(&self.shared.stop).is_ok_and(is_anonymous) {
            let _ = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
        }
        // An answer itself may drop this value, on the control thread.
        let itself = thread.thread().id() == thread::current().id();
        if !itself && matches!(ended.recv_timeout(LEAVING), Err(RecvTimeoutError::Disconnected)) {
            let _ = thread.join();
        }
    }
}
