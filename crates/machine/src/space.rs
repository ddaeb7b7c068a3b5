//! How an address space takes part: it takes a number, which is in all of its ids, and then answers
//! at the control socket of that number.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use kumihimo_resource::id::Location;
use kumihimo_resource::serials::Claim;
use nix::sys::signal::{SigSet, SigmaskHow};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::SocketType;

use crate::answer::Answer;
use crate::descriptors::Kept;
use crate::directory::{Claimed, Directory, note_down, socket_name};
use crate::ear::Voice;
use crate::error::Error;
use crate::serve::Server;
use crate::socket;

/// Answers take lines and names, and unwind stacks; what they do not touch costs nothing.
const STACK: usize = 512 << 10;
/// Admitted clients wait here; more are told that it is busy.
const BACKLOG: i32 = 128;
/// An answer may take a second; one that takes longer is left to end by itself.
const LEAVING: Duration = Duration::from_secs(3);

/// A number of this machine that is this process's alone while it has it, and no ids' of the dead.
///
/// It is given back when this is dropped, or the process ends, however it does. The next process
/// with the number begins above the generations that were claimed with it. In a fork's child it is
/// nobody's: see [`forget_in_child`](Number::forget_in_child).
#[derive(Debug)]
pub struct Number {
    pub(crate) directory: Directory,
    pub(crate) number: u16,
    first: u32,
    lock: Arc<Kept>,
    pub(crate) pid: u32,
    /// As long as it can tell others.
    pub(crate) voice: OnceLock<Voice>,
}

impl Number {
    /// One in the caller's run-time directory, see [`Directory::mine`]. Takes some ten
    /// microseconds; where very many begin at once, up to a second.
    ///
    /// # Errors
    /// [`Error::Directory`]: there is none that can be used; it is full, or read-only; all numbers
    /// are taken; something was planted there.
    pub fn take() -> Result<Number, Error> {
        Number::take_in(Directory::mine()?)
    }

    /// One in that directory, which must be the caller's own.
    ///
    /// # Errors
    /// As [`take`](Number::take).
    pub fn take_in(directory: Directory) -> Result<Number, Error> {
        if !directory.is_mine() {
            let (path, owner) = (directory.path().display(), directory.owner());
            return Err(Error::Directory(format!(
                "run-time directory {path} is user {owner}'s: only their processes join there"
            )));
        }
        let Claimed { number, first, lock } = directory.claim()?;
        Ok(Number {
            directory,
            number,
            first,
            lock: Arc::new(lock),
            pid: std::process::id(),
            voice: OnceLock::new(),
        })
    }

    /// What the ids of this address space begin with.
    ///
    /// # Panics
    /// Never: numbers are in range.
    #[must_use]
    pub fn location(&self) -> Location {
        Location::new(self.number).expect("numbers are in range")
    }

    /// The first generation that was never used with this number: for `Generations::new`.
    #[must_use]
    pub fn first_generation(&self) -> u32 {
        self.first
    }

    /// Notes what is used with this number: for `Generations::new`. It refuses (false) where it
    /// cannot be written (disk full), after the number was given back, and in a fork's child.
    #[must_use]
    pub fn claim(&self) -> Claim {
        let (lock, pid) = (Arc::downgrade(&self.lock), self.pid);
        Box::new(move |limit| {
            std::process::id() == pid
                && lock.upgrade().is_some_and(|lock| note_down(&*lock, limit).is_ok())
        })
    }

    /// The run-time directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// In a fork's child, as soon as can be: closes its copies of all descriptors that belong to
    /// the number and its [`Control`], so that the number does not outlive the parent in it. It
    /// changes nothing for the parent. Both may be dropped or leaked afterwards. Async-signal-safe.
    pub fn forget_in_child(&self) {
        if std::process::id() != self.pid {
            self.directory.forget_in_child();
        }
    }
}

/// What the control kernel thread and its handle share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) number: Arc<Number>,
    pub(crate) stop: Kept,
    allowed: Mutex<Vec<u32>>,
    pub(crate) refused: AtomicU64,
}

impl Shared {
    pub(crate) fn keep(&self, fd: OwnedFd) -> Kept {
        self.number.directory.keep(fd)
    }

    pub(crate) fn location(&self) -> u16 {
        self.number.number
    }

    pub(crate) fn owner(&self) -> u32 {
        self.number.directory.owner()
    }

    /// Whether that user may ask; counts the refused ones.
    pub(crate) fn admits(&self, uid: u32) -> bool {
        let admits = uid == self.owner() || uid == 0 || self.allowed().contains(&uid);
        if !admits {
            self.refused.fetch_add(1, Ordering::Relaxed);
        }
        admits
    }

    fn allowed(&self) -> std::sync::MutexGuard<'_, Vec<u32>> {
        self.allowed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much the control socket bears.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// So many connections at once; for one more, the one that has been idle for longest is closed.
    /// At most 64.
    pub connections: usize,
    /// One that asks nothing for so long is closed, and one that does not take an answer within it.
    pub patience: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { connections: 64, patience: Duration::from_secs(10) }
    }
}

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
    pub fn start(number: Arc<Number>, answer: Weak<dyn Answer>) -> Result<Control, Error> {
        Control::start_within(number, answer, Limits::default())
    }

    /// As [`start`](Control::start), with other limits.
    ///
    /// # Errors
    /// As `start`.
    pub fn start_within(
        number: Arc<Number>,
        answer: Weak<dyn Answer>,
        limits: Limits,
    ) -> Result<Control, Error> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(Error::io("control socket"))?;
        let listener = number.directory.keep(socket::listen(
            &number,
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
