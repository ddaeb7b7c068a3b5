//! Sockets handed over from process to process: from a service manager, or from a server to its
//! successor.
//!
//! The convention is that of sd_listen_fds(3): the sockets are descriptors 3 and up, `LISTEN_FDS`
//! is their number, `LISTEN_FDNAMES` their names, and `LISTEN_PID` the process that they are meant
//! for. [`take`] receives them, and [`hand_over`] passes them on.
//!
//! To replace a server without refusing a client, it starts its successor with its listeners and
//! [drains](super::Server::drain). Either of the two accepts the connections in the backlog.
//!
//! Both processes share the open file. Sockets of Kumihimo keep `O_NONBLOCK` set on it. Converting
//! a listener into std's type clears the flag, after which `accept` may block a kernel thread of
//! the other process.

use std::ffi::{CString, OsString, c_char};
use std::fmt;
use std::io::{self, ErrorKind, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::{Domain, SockRef, Type};

use super::{TcpListener, UdpSocket, UnixDatagram, UnixListener};

/// The first descriptor that is handed over (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;
/// Name of a descriptor without a name.
const NAMELESS: &str = "unknown";

/// Sockets that this process has inherited and not yet taken.
///
/// # Examples
///
/// ```
/// use kumihimo::net::{UdpSocket, inherited};
///
/// let mut sockets = inherited::take()?;
/// // A service manager passes the socket; without one the program binds it.
/// let socket: UdpSocket = match sockets.named("dns")? {
///     Some(socket) => socket,
///     None => UdpSocket::bind("127.0.0.1:0")?,
/// };
/// assert!(socket.local_addr()?.ip().is_loopback());
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Inherited(Vec<Option<(String, OwnedFd)>>);

/// Takes the sockets that were handed over to this process, if any; a second call returns none. The
/// descriptors are closed on exec from now on. Sockets still in the result are closed when it
/// drops.
///
/// # Errors
/// `InvalidInput`, naming the variable or descriptor, if the variables contradict each other or a
/// descriptor is not open.
///
/// # Examples
///
/// ```
/// use kumihimo::net::{TcpListener, inherited};
///
/// let mut sockets = inherited::take()?;
/// let listener = match sockets.named::<TcpListener>("http")? {
///     Some(listener) => listener,
///     None => TcpListener::bind("127.0.0.1:0")?,
/// };
/// assert_ne!(listener.local_addr()?.port(), 0);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn take() -> io::Result<Inherited> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let text = |name| std::env::var(name).ok();
    // Meant for another process: our parent forgot to remove the variables.
    if text("LISTEN_PID").and_then(|pid| pid.parse().ok()) != Some(std::process::id()) {
        return Ok(Inherited::default());
    }
    let Some(count) = text("LISTEN_FDS") else { return Ok(Inherited::default()) };
    let wrong = |what: String| {
        io::Error::new(ErrorKind::InvalidInput, format!("sockets handed over: {what}"))
    };
    let count = match count.parse::<RawFd>() {
        Ok(count) if (0..=RawFd::MAX - FIRST).contains(&count) => count,
        _ => return Err(wrong(format!("LISTEN_FDS is {count:?}, not a number of descriptors"))),
    };
    let names: Vec<String> = text("LISTEN_FDNAMES")
        .map(|all| all.split(':').map(str::to_owned).collect())
        .unwrap_or_default();
    if !names.is_empty() && names.len() != count as usize {
        let given = names.len();
        return Err(wrong(format!(
            "LISTEN_FDNAMES has {given} names for the {count} descriptors of LISTEN_FDS"
        )));
    }
    for fd in FIRST..FIRST + count {
        // SAFETY: no pointer.
        if unsafe { kumihimo_arch::kernel::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) } != 0 {
            return Err(wrong(format!("LISTEN_FDS is {count}, but descriptor {fd} is not open")));
        }
    }
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Inherited::default());
    }
    let name = |i| names.get(i).map_or(NAMELESS, String::as_str).to_owned();
    // SAFETY: open, as just seen, and by the convention nobody else's; the flag keeps them from
    // being taken twice.
    let all =
        (0..count).map(|i| Some((name(i as usize), unsafe { OwnedFd::from_raw_fd(FIRST + i) })));
    Ok(Inherited(all.collect()))
}

impl Inherited {
    /// Names of the sockets that were not yet taken, in the order of their descriptors.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::inherited;
    ///
    /// let sockets = inherited::take()?;
    /// assert_eq!(sockets.names().count(), 0, "none were handed over to this program");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flatten().map(|(name, _)| name.as_str())
    }

    /// The first socket of that name, as `T`: [`TcpListener`], [`UnixListener`], [`UdpSocket`] or
    /// [`UnixDatagram`]. `None` if there is none, or if it was taken.
    ///
    /// # Errors
    /// `InvalidInput`, naming its actual type, if it is not a `T`. It can still be taken.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{UnixListener, inherited};
    ///
    /// let mut sockets = inherited::take()?;
    /// let control: Option<UnixListener> = sockets.named("control")?;
    /// assert!(control.is_none(), "none were handed over to this program");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn named<T: Inheritable>(&mut self, name: &str) -> io::Result<Option<T>> {
        let at = self.0.iter().position(|one| one.as_ref().is_some_and(|(n, _)| n == name));
        at.map_or(Ok(None), |at| self.at(at))
    }

    /// The socket at `index`, counted from 0, as [`named`](Inherited::named) does.
    ///
    /// # Errors
    /// The same.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::{TcpListener, inherited};
    ///
    /// let mut sockets = inherited::take()?;
    /// let first: Option<TcpListener> = sockets.at(0)?;
    /// assert!(first.is_none(), "none were handed over to this program");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn at<T: Inheritable>(&mut self, index: usize) -> io::Result<Option<T>> {
        let Some(Some((name, fd))) = self.0.get(index) else { return Ok(None) };
        let found = Found::of(fd.as_fd())
            .map_err(|e| not(name, index, &format!("no socket ({e})"), T::WHAT))?;
        if !T::fits(&found) {
            return Err(not(name, index, &found.to_string(), T::WHAT));
        }
        Ok(self.0[index].take().map(|(_, fd)| T::waiting(fd)))
    }
}

fn not(name: &str, index: usize, found: &str, wanted: &str) -> io::Error {
    let fd = FIRST + index as RawFd;
    let text = format!(
        "descriptor {fd}, handed over as {name:?}, is {found}, not {wanted}: see the parent of this process"
    );
    io::Error::new(ErrorKind::InvalidInput, text)
}

/// The type of an inherited descriptor.
#[doc(hidden)]
#[derive(Debug)]
pub struct Found {
    domain: Domain,
    kind: Type,
    listens: bool,
}

impl Found {
    fn of(fd: BorrowedFd<'_>) -> io::Result<Found> {
        let socket = SockRef::from(&fd);
        Ok(Found {
            domain: socket.domain()?,
            kind: socket.r#type()?,
            listens: socket.is_listener()?,
        })
    }

    fn is_ip(&self) -> bool {
        self.domain == Domain::IPV4 || self.domain == Domain::IPV6
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let family = match self.domain {
            Domain::IPV4 => "an IPv4",
            Domain::IPV6 => "an IPv6",
            Domain::UNIX => "a UNIX",
            _ => "a strange",
        };
        let kind = match self.kind {
            Type::STREAM => "stream",
            Type::DGRAM => "datagram",
            _ => "other",
        };
        write!(f, "{family} {kind} socket{}", if self.listens { " that listens" } else { "" })
    }
}

/// A socket type that can be handed over.
///
/// # Examples
///
/// ```
/// use kumihimo::net::inherited::{self, Inheritable};
/// use kumihimo::net::{TcpListener, UdpSocket};
/// use std::io;
///
/// /// The socket of that name, or one that `bind` makes.
/// fn socket<T: Inheritable>(name: &str, bind: impl Fn() -> io::Result<T>) -> io::Result<T> {
///     inherited::take()?.named(name)?.map_or_else(bind, Ok)
/// }
///
/// let web = socket("web", || TcpListener::bind("127.0.0.1:0"))?;
/// let dns = socket("dns", || UdpSocket::bind("127.0.0.1:0"))?;
/// assert!(web.local_addr()?.port() != 0 && dns.local_addr()?.port() != 0);
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Inheritable: From<OwnedFd> + sealed::Sealed {
    #[doc(hidden)]
    const WHAT: &'static str;
    #[doc(hidden)]
    fn fits(found: &Found) -> bool;
    #[doc(hidden)]
    fn waiting(fd: OwnedFd) -> Self;
}

mod sealed {
    /// Prevents implementations outside of this crate.
    pub trait Sealed {}
}

macro_rules! inheritable {
    ($($socket:ident: $what:literal, $fits:expr;)*) => {
        $(
            impl sealed::Sealed for $socket {}
            impl Inheritable for $socket {
                const WHAT: &'static str = $what;
                fn fits(found: &Found) -> bool {
                    let fits: fn(&Found) -> bool = $fits;
                    fits(found)
                }
                fn waiting(fd: OwnedFd) -> Self {
                    let socket = $socket::from(fd);
                    // O_NONBLOCK belongs to the open file, which the process that handed it over
                    // still has, and may have set for reasons of its own.
                    socket.set_nonblocking(false).expect("an open socket");
                    socket
                }
            }
        )*
    };
}

inheritable! {
    TcpListener: "a TCP socket that listens", |f| f.is_ip() && f.kind == Type::STREAM && f.listens;
    UnixListener: "a UNIX stream socket that listens", |f| f.domain == Domain::UNIX && f.kind == Type::STREAM && f.listens;
    UdpSocket: "a UDP socket", |f| f.is_ip() && f.kind == Type::DGRAM;
    UnixDatagram: "a UNIX datagram socket", |f| f.domain == Domain::UNIX && f.kind == Type::DGRAM;
}

/// Prepares `command` to hand `sockets` over, by these names, to the process that it starts. They
/// stay usable here.
///
/// **Call it last**: program, arguments and environment are captured at this call. `LISTEN_PID` is
/// known in the child only, after std has prepared the environment, so the child calls exec itself.
/// `Command::env_clear` and `CommandExt::arg0` have no effect. Standard streams, directory and user
/// can still be set afterwards.
///
/// # Errors
/// `InvalidInput` for a name with a `:` or a control character, and for a NUL byte; no descriptors
/// left: it needs two for each socket, until `command` is dropped.
///
/// # Examples
///
/// ```
/// use kumihimo::net::{TcpListener, inherited};
/// use std::os::fd::AsFd;
/// use std::process::Command;
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut successor = Command::new("sh");
/// successor.args(["-c", "echo $LISTEN_FDS $LISTEN_FDNAMES; test -S /dev/fd/3"]);
/// inherited::hand_over(&mut successor, &[("http", listener.as_fd())])?;
///
/// let output = successor.output()?;
/// assert_eq!(output.stdout, b"1 http\n");
/// assert!(output.status.success(), "descriptor 3 is the socket");
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn hand_over(command: &mut Command, sockets: &[(&str, BorrowedFd<'_>)]) -> io::Result<()> {
    let mut names = String::new();
    let mut sources = Vec::new();
    let mut places = Vec::new();
    let beyond = FIRST + sockets.len() as RawFd;
    for (i, (name, fd)) in sockets.iter().enumerate() {
        if name.contains(|c: char| c == ':' || c.is_control()) {
            let text = format!(
                "a socket to be handed over cannot be named {name:?}: no colons and control characters"
            );
            return Err(io::Error::new(ErrorKind::InvalidInput, text));
        }
        names = if i == 0 { (*name).to_owned() } else { names + ":" + name };
        // Above every target number, so that no dup2 overwrites a source.
        sources.push(duplicate(*fd, beyond)?);
        // The target numbers must be in use: `Command` could otherwise get one of them for the pipe
        // that reports the child's errors.
        let place = duplicate(*fd, FIRST + i as RawFd)?;
        places.extend((place.as_raw_fd() < beyond).then_some(place));
    }
    let program = CString::new(command.get_program().as_bytes())?;
    let arguments: Vec<_> = [command.get_program()]
        .into_iter()
        .chain(command.get_args())
        .map(|argument| CString::new(argument.as_bytes()))
        .collect::<Result<_, _>>()?;
    let mut environment = environment(command)?;
    environment.push(CString::new(format!("LISTEN_FDS={}", sockets.len()))?);
    environment.push(CString::new(format!("LISTEN_FDNAMES={names}"))?);
    let mut exec = Exec::new(program, arguments, environment);
    let child = move || {
        let _taken = &places;
        for (to, from) in (FIRST..).zip(&sources) {
            // SAFETY: no pointers. The number is taken, if at all, by what this process would lose
            // in the exec, or by a placeholder.
            if unsafe { kumihimo_arch::kernel::dup2(from.as_raw_fd(), to) } < 0 {
                return Err(io::Error::last_os_error());
            }
        }
        Err(exec.run())
    };
    // SAFETY: between fork and exec it calls dup2, getpid and execvpe, and writes to memory that is
    // there: no allocation, no lock.
    unsafe { command.pre_exec(child) };
    Ok(())
}

/// A second descriptor of at least that number, closed on exec.
fn duplicate(fd: BorrowedFd<'_>, least: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: no pointer.
    let fd = unsafe { kumihimo_arch::kernel::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: fresh from the kernel, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Environment of the child of `command`, without the `LISTEN_` variables of this process.
fn environment(command: &Command) -> io::Result<Vec<CString>> {
    let changed = |name: &OsString| command.get_envs().any(|(key, _)| key == name);
    let ours =
        |name: &OsString| ["LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"].iter().any(|n| name == *n);
    let set =
        command.get_envs().filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())));
    std::env::vars_os()
        .filter(|(name, _)| !changed(name))
        .chain(set)
        .filter(|(name, _)| !ours(name))
        .map(|(name, value)| Ok(CString::new([name.as_bytes(), b"=", &value.into_vec()].concat())?))
        .collect()
}

/// Program, arguments and environment of the child, prepared before the fork.
struct Exec {
    program: CString,
    arguments: Vec<*const c_char>,
    environment: Vec<*const c_char>,
    /// The strings that both lists point into.
    _strings: [Vec<CString>; 2],
    /// The last string of the environment: room for the longest process id and a NUL.
    pid: [u8; PID.len() + 12],
}

const PID: &[u8] = b"LISTEN_PID=";

// SAFETY: the pointers refer to strings that the value owns, and that are never modified.
unsafe impl Send for Exec {}
// SAFETY: as above.
unsafe impl Sync for Exec {}

impl Exec {
    fn new(program: CString, arguments: Vec<CString>, environment: Vec<CString>) -> Exec {
        let pointers = |strings: &[CString], nulls| -> Vec<_> {
            strings
                .iter()
                .map(|s| s.as_ptr())
                .chain(std::iter::repeat_n(std::ptr::null(), nulls))
                .collect()
        };
        let mut pid = [0; PID.len() + 12];
        pid[..PID.len()].copy_from_slice(PID);
        Exec {
            program,
            arguments: pointers(&arguments, 1),
            // One for the process id, one at the end.
            environment: pointers(&environment, 2),
            _strings: [arguments, environment],
            pid,
        }
    }

    /// In the child. Returns only if it fails.
    fn run(&mut self) -> io::Error {
        // Zeroes follow.
        if let Err(e) = write!(&mut self.pid[PID.len()..], "{}", std::process::id()) {
            return e;
        }
        let last = self.environment.len() - 2;
        self.environment[last] = self.pid.as_ptr().cast();
        // SAFETY: lists of NUL-terminated strings that end with null; all of them are owned by
        // `self`.
        unsafe {
            libc::execvpe(self.program.as_ptr(), self.arguments.as_ptr(), self.environment.as_ptr())
        };
        io::Error::last_os_error()
    }
}
