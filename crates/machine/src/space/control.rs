//! The control socket of an address space: starts and stops the kernel thread that serves it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::SocketType;

use super::number::Number;
use super::server::Server;
use super::shared::{Limits, Shared};
use crate::directory::{socket, socket_name};
use crate::error::Error;
use crate::handler::ControlHandler;

/// Answers take lines and names, and unwind stacks; what they do not touch costs nothing.
const STACK: usize = 512 << 10;
/// Admitted clients wait here; more are told that it is busy.
const BACKLOG: i32 = 128;
/// An answer may take a second; one that takes longer is left to end by itself.
const LEAVING: Duration = Duration::from_secs(3);

/// The control socket of an address space and the kernel thread that serves it, `kumi-control`.
/// Until it is dropped: then nobody finds the socket any more, and the thread ends, which takes no
/// longer than the answer at which it may be, 3 s at most.
#[derive(Debug)]
pub struct Control {
    shared: Arc<Shared>,
    thread: Option<(JoinHandle<()>, Receiver<()>)>,
}

impl Control {
    /// Begins to answer. The kernel thread takes no signals.
    ///
    /// # Errors
    /// [`Error::Directory`]: full, read-only; the socket's path is too long, where there is no
    /// /proc. [`Error::Io`]: no descriptors, no kernel thread.
    pub fn start(number: Arc<Number>, answer: Weak<dyn ControlHandler>) -> Result<Control, Error> {
        Control::start_within(number, answer, Limits::default())
    }

    /// As [`start`](Control::start), with other limits.
    ///
    /// # Errors
    /// As `start`.
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
        // The new thread has its creator's mask from its first instruction on.
        let before = SigSet::all().thread_swap_mask(SigmaskHow::SIG_SETMASK);
        let thread =
            thread::Builder::new().name("kumi-control".into()).stack_size(STACK).spawn(run);
        if let Ok(before) = before {
            let _ = before.thread_set_mask();
        }
        let thread = thread.map_err(|e| {
            let _ = shared.number.directory.remove_socket(&socket_name(shared.number.number));
            Error::Io("the control kernel thread".into(), e)
        })?;
        Ok(Control { shared, thread: Some((thread, ended)) })
    }

    /// Lets user `uid` in too. Others than root and the directory's owner reach the socket only
    /// where they may pass through all directories above the run-time directory: so it is in
    /// `/dev/shm` and not in `$XDG_RUNTIME_DIR`. From here on others see which numbers there are.
    ///
    /// # Errors
    /// What changing the modes of directory and socket says; then the user is not let in.
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

    /// Lets user `uid` in no longer: from their next request on, over connections that they have
    /// too. False: they were not on the list.
    ///
    /// # Errors
    /// What changing the mode of the socket says; the user is refused nevertheless.
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

    /// How many attempts were refused, as in the metric `kumihimo_control_refused_total`.
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
            // A fork's child: the socket is the parent's, and the thread is not here.
            std::mem::forget((thread, ended));
            return;
        }
        let _ = number.directory.remove_socket(&socket_name(number.number));
        let _ = rustix::io::write(&self.shared.stop, &1_u64.to_ne_bytes());
        // The answer may drop the answering side by itself.
        let itself = thread.thread().id() == thread::current().id();
        if !itself && matches!(ended.recv_timeout(LEAVING), Err(RecvTimeoutError::Disconnected)) {
            let _ = thread.join();
        }
    }
}
