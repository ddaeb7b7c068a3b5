//! Signals of the process, received by blocking calls of microprocesses.
//!
//! The handler only adds to an eventfd, which is async-signal-safe; streams wait for its readiness.
//! In a forked child that does not call execve(2), a signal takes its default action: the child has
//! no stream, and the parent does not receive the child's signals. From the first [`stream`] or
//! [`ctrl_c`] on, the handler stays installed for the life of the process (signal-hook-registry),
//! with `SA_RESTART`, and the signal's default action is disabled. It calls the previous handler
//! first. The kernel merges equal signals that are pending (signal(7)); every delivery is counted,
//! and reported by every stream.
//!
//! `SIGPIPE` is ignored by Rust programs; a write without a reader is `BrokenPipe`.
//!
//! # Examples
//!
//! ```
//! use kumihimo::signal::{self, Kind};
//!
//! let mut hangups = signal::stream(Kind::HANGUP)?;
//! # unsafe { libc::raise(libc::SIGHUP) };
//! hangups.recv()?; // blocks this microprocess until SIGHUP is delivered
//! assert_eq!(hangups.kind(), Kind::HANGUP);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use kumihimo_runtime::readiness::Interest;
use kumihimo_runtime::wakeup::add_to_eventfd;
use signal_hook_registry::{FORBIDDEN, SigId};

use crate::descriptor::Descriptor;

/// A signal.
///
/// # Examples
///
/// ```
/// use kumihimo::signal::Kind;
///
/// let stop = [Kind::INTERRUPT, Kind::TERMINATE];
/// assert!(stop.contains(&Kind::from_raw(15)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind(libc::c_int);

impl Kind {
    /// SIGALRM: a timer of alarm(2).
    pub const ALARM: Kind = Kind(libc::SIGALRM);
    /// SIGCHLD: a child process ended or stopped.
    pub const CHILD: Kind = Kind(libc::SIGCHLD);
    /// SIGHUP: the terminal is gone; for daemons, read the settings again.
    pub const HANGUP: Kind = Kind(libc::SIGHUP);
    /// SIGINT: Ctrl-C.
    pub const INTERRUPT: Kind = Kind(libc::SIGINT);
    /// SIGPIPE: a write without a reader.
    pub const PIPE: Kind = Kind(libc::SIGPIPE);
    /// SIGQUIT: Ctrl-\.
    pub const QUIT: Kind = Kind(libc::SIGQUIT);
    /// SIGTERM: a request to terminate.
    pub const TERMINATE: Kind = Kind(libc::SIGTERM);
    /// SIGUSR1.
    pub const USER_1: Kind = Kind(libc::SIGUSR1);
    /// SIGUSR2.
    pub const USER_2: Kind = Kind(libc::SIGUSR2);
    /// SIGWINCH: the size of the terminal has changed.
    pub const WINDOW_CHANGE: Kind = Kind(libc::SIGWINCH);

    /// The signal with this number, for example a real-time signal.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::signal::Kind;
    ///
    /// assert_eq!(Kind::from_raw(2), Kind::INTERRUPT);
    /// ```
    #[must_use]
    pub const fn from_raw(number: i32) -> Kind {
        Kind(number)
    }

    /// The signal's number.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::signal::Kind;
    ///
    /// assert_eq!(Kind::HANGUP.as_raw(), 1);
    /// assert_eq!(Kind::from_raw(40).as_raw(), 40);
    /// ```
    #[must_use]
    pub const fn as_raw(self) -> i32 {
        self.0
    }
}

/// The deliveries of one signal since [`stream`] was called. Dropping it stops the counting, but
/// does not restore the signal's default action.
///
/// # Examples
///
/// ```
/// use kumihimo::process::Command;
/// use kumihimo::signal::{self, Kind};
///
/// let mut signals = signal::stream(Kind::USER_1)?;
/// Command::new("sh").args(["-c", "kill -USR1 $PPID"]).status()?;
/// assert_eq!(signals.next().unwrap()?, Kind::USER_1);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Stream {
    kind: Kind,
    id: SigId,
    counter: Descriptor<Arc<OwnedFd>>,
    /// Deliveries taken from the counter and not yet returned.
    due: u64,
}

/// Counts the deliveries of `kind` from now on. Does not block.
///
/// # Errors
/// `InvalidInput` for signals that cannot be received this way: SIGKILL, SIGSTOP, faults (SIGSEGV,
/// SIGILL, SIGFPE, SIGBUS), SIGTRAP, which Kumihimo's own events use, and invalid numbers. No
/// descriptor left.
///
/// # Examples
///
/// ```
/// use kumihimo::io::ErrorKind;
/// use kumihimo::process::Command;
/// use kumihimo::signal::{self, Kind};
///
/// let mut reload = signal::stream(Kind::HANGUP)?;
/// Command::new("sh").args(["-c", "kill -HUP $PPID"]).status()?;
/// reload.recv()?;
///
/// // Nothing can receive SIGKILL.
/// let error = signal::stream(Kind::from_raw(9)).unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::InvalidInput);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn stream(kind: Kind) -> io::Result<Stream> {
    if FORBIDDEN.contains(&kind.0) || [libc::SIGTRAP, libc::SIGBUS].contains(&kind.0) {
        return Err(io::Error::new(
            ErrorKind::InvalidInput,
            format!("signal {} cannot be waited for", kind.0),
        ));
    }
    // SAFETY: no pointers.
    let fd = unsafe { kumihimo_arch::kernel::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh from the kernel, owned by nobody else.
    let counter = Arc::new(unsafe { OwnedFd::from_raw_fd(fd) });
    let told = counter.clone();
    let process = std::process::id();
    let had_default = had_default_action(kind.0);
    let count = move || {
        // A forked child has the handler, too, and shares the eventfd.
        if std::process::id() == process {
            add_to_eventfd(told.as_fd());
        } else if had_default {
            take_default_action(kind.0);
        }
    };
    // SAFETY: async-signal-safe; errno is kept by the registry's handler.
    let id = unsafe { signal_hook_registry::register(kind.0, count) }?;
    Ok(Stream { kind, id, counter: Descriptor::new(counter), due: 0 })
}

/// Whether the signal had its default action before the first stream of it.
fn had_default_action(signal: libc::c_int) -> bool {
    const OTHER: u8 = 1;
    const DEFAULT: u8 = 2;
    /// By signal; 0: not asked yet.
    static BEFORE: [AtomicU8; 65] = [const { AtomicU8::new(0) }; 65];
    let Some(before) = usize::try_from(signal).ok().and_then(|n| BEFORE.get(n)) else {
        return false;
    };
    // SAFETY: all zeroes are a valid action; a live structure.
    let is_default = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        kumihimo_arch::kernel::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_DFL
    };
    // Relaxed: a plain value. Of two first streams at the same time, both may see the default
    // action or the first one's handler; the earlier answer stands.
    let now = if is_default { DEFAULT } else { OTHER };
    let first = before.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
    match first {
        Ok(_) => is_default,
        Err(answered) => answered == DEFAULT,
    }
}

/// Does to a forked child what the signal does to a process that no stream receives it in.
/// Async-signal-safe.
fn take_default_action(signal: libc::c_int) {
    // SAFETY: all zeroes are a valid action, SIG_DFL, with an empty mask.
    let default: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: a live structure; SIG_DFL runs no code. The signal is blocked while its handler runs,
    // so that it acts when the handler returns.
    unsafe {
        kumihimo_arch::kernel::sigaction(signal, &raw const default, std::ptr::null_mut());
        kumihimo_arch::kernel::raise(signal);
    }
}

impl Stream {
    /// The signal.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::signal::{self, Kind};
    ///
    /// assert_eq!(signal::stream(Kind::WINDOW_CHANGE)?.kind(), Kind::WINDOW_CHANGE);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Blocks the microprocess until the signal is delivered; returns once for each delivery. A
    /// cancellation point.
    ///
    /// # Errors
    /// `TimedOut` when the deadline of a scope has passed.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::io::ErrorKind;
    /// use kumihimo::signal::{self, Kind};
    /// use kumihimo::thread;
    /// use std::time::{Duration, Instant};
    ///
    /// let mut alarms = signal::stream(Kind::ALARM)?;
    /// # unsafe { libc::raise(libc::SIGALRM) };
    /// # unsafe { libc::raise(libc::SIGALRM) };
    /// // Two alarms have come. No third one comes within the deadline.
    /// alarms.recv()?;
    /// alarms.recv()?;
    /// let deadline = Instant::now() + Duration::from_millis(5);
    /// let outcome = thread::scope_until(deadline, |_| alarms.recv());
    /// assert_eq!(outcome.unwrap_err().kind(), ErrorKind::TimedOut);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv(&mut self) -> io::Result<()> {
        if self.due == 0 {
            self.due = self.counter.attempt(Interest::Read, || {
                let mut n = 0u64;
                // SAFETY: 8 live bytes.
                match unsafe {
                    kumihimo_arch::kernel::read(self.counter.fd(), (&raw mut n).cast(), 8)
                } {
                    8 => Ok(n),
                    _ => Err(io::Error::last_os_error()),
                }
            })?;
        }
        self.due -= 1;
        Ok(())
    }
}

/// Never ends; each item is the result of [`recv`](Stream::recv).
impl Iterator for Stream {
    type Item = io::Result<Kind>;

    fn next(&mut self) -> Option<io::Result<Kind>> {
        Some(self.recv().map(|()| self.kind))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        signal_hook_registry::unregister(self.id);
    }
}

/// Blocks the microprocess until SIGINT (Ctrl-C) is delivered. A cancellation point.
///
/// From the first call on, SIGINT no longer terminates the process, and a delivery without a waiter
/// is lost. A program that must not miss any keeps a [`stream`].
///
/// # Errors
/// As [`stream`] and [`Stream::recv`].
///
/// # Examples
///
/// ```
/// use kumihimo::{signal, thread};
///
/// # let _handled = signal::stream(signal::Kind::INTERRUPT)?;
/// # let _user = thread::spawn(|| {
/// #     loop {
/// #         unsafe { libc::kill(libc::getpid(), libc::SIGINT) };
/// #         thread::sleep(std::time::Duration::from_millis(1));
/// #     }
/// # });
/// let server = thread::spawn(thread::park); // serves until it is cancelled
/// signal::ctrl_c()?; // the user ends the program
/// server.cancel();
/// assert!(server.join().is_err(), "cancelled");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn ctrl_c() -> io::Result<()> {
    stream(Kind::INTERRUPT)?.recv()
}
