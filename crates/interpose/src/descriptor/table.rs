//! What is known of each descriptor number: the kind of its file, and its readiness while somebody
//! waits for it.
//!
//! The kind is a guess that lasts from one close to the next. Code that closes and opens files
//! without the C library's exported functions may make it wrong; then a call fails with `ENOTSOCK`
//! and is repeated as one for any file, or waits in the kernel. Neither harms anybody.

use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, Ordering};
use std::sync::{Arc, Mutex};

use kumihimo_runtime::readiness::Source;

use crate::real::libc;
use crate::start::phase;

/// Numbers from here on are handled by the C library: the default limit of the kernel (fs.nr_open
/// in proc_sys_fs(5)).
const NUMBERS: usize = 1 << 20;
const IN_CHUNK: usize = 1 << 10;

/// Nothing is known.
const UNKNOWN: u8 = 0;
/// A socket of messages, or one of another family than the Internet's.
const SOCKET: u8 = 1;
/// A TCP connection.
const TCP: u8 = 2;
/// A socket of messages between processes of this machine (unix(7)): a send waits for room at the
/// receiver, of which no descriptor of the sender tells.
const LOCAL_MESSAGES: u8 = 3;
const PIPE: u8 = 4;
/// A file without a type, as eventfd(2) and timerfd_create(2) make them.
const COUNTER: u8 = 5;
/// A file that is always ready, or whose waits are the kernel's.
const OTHER: u8 = 6;
/// A stream of the Internet that the program has made. Whether it is of TCP, its protocol says.
const STREAM: u8 = 7;

/// One number.
pub(super) struct Place {
    kind: AtomicU8,
    /// Made by a function of this library, for the program: see `kept`.
    is_programs: AtomicBool,
    source: Mutex<Option<Arc<Source>>>,
}

type Chunk = [Place; IN_CHUNK];

static CHUNKS: [AtomicPtr<Chunk>; NUMBERS / IN_CHUNK] =
    [const { AtomicPtr::new(std::ptr::null_mut()) }; NUMBERS / IN_CHUNK];

/// Returns the place of `fd`, if it was used.
fn used(fd: i32) -> Option<&'static Place> {
    let fd = usize::try_from(fd).ok().filter(|fd| *fd < NUMBERS)?;
    // SAFETY: null or a chunk, which lives for ever.
    let chunk = unsafe { CHUNKS[fd / IN_CHUNK].load(Ordering::Acquire).as_ref() }?;
    Some(&chunk[fd % IN_CHUNK])
}

/// Returns the place of `fd`. `None` for a number that is none, or beyond the table.
pub(super) fn place(fd: i32) -> Option<&'static Place> {
    if let Some(place) = used(fd) {
        return Some(place);
    }
    let fd = usize::try_from(fd).ok().filter(|fd| *fd < NUMBERS)?;
    let new = Box::into_raw(Box::new([const { Place::unused() }; IN_CHUNK]));
    let at = &CHUNKS[fd / IN_CHUNK];
    let empty = std::ptr::null_mut();
    // Release: a reader finds the places initialised.
    let chunk = match at.compare_exchange(empty, new, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => new,
        Err(other) => {
            // SAFETY: made above, and not published.
            drop(unsafe { Box::from_raw(new) });
            other
        }
    };
    // SAFETY: published chunks live for ever.
    Some(unsafe { &(&*chunk)[fd % IN_CHUNK] })
}

impl Place {
    const fn unused() -> Place {
        Place {
            kind: AtomicU8::new(UNKNOWN),
            is_programs: AtomicBool::new(false),
            source: Mutex::new(None),
        }
    }

    /// Whether the file is a socket. Asks the kernel once for each file.
    pub(super) fn is_socket(&self, fd: i32) -> bool {
        matches!(self.kind(fd), SOCKET | TCP | LOCAL_MESSAGES)
    }

    /// Whether the file is a socket of TCP.
    pub(super) fn is_tcp(&self, fd: i32) -> bool {
        self.kind(fd) == TCP
    }

    /// Whether a read that leaves room in its buffer has emptied the file. Not so for messages, and
    /// not where descriptors or credentials divide a stream (unix(7)).
    pub(super) fn short_read_empties(&self, fd: i32) -> bool {
        self.kind(fd) == TCP
    }

    /// Whether a send may wait for a receiver, and not for room of its own.
    pub(super) fn sends_wait_for_receiver(&self, fd: i32) -> bool {
        self.kind(fd) == LOCAL_MESSAGES
    }

    /// Whether the file is without a type, like an eventfd.
    pub(super) fn is_counter(&self, fd: i32) -> bool {
        self.kind(fd) == COUNTER
    }

    /// Whether the file is a pipe.
    pub(super) fn is_pipe(&self, fd: i32) -> bool {
        self.kind(fd) == PIPE
    }

    fn kind(&self, fd: i32) -> u8 {
        match self.kind.load(Ordering::Relaxed) {
            UNKNOWN => self.examine(fd),
            STREAM => self.examine_stream(fd),
            kind => kind,
        }
    }

    /// Asks the kernel for the protocol only: a library before the C library may have put another
    /// one than TCP in its place, as mptcpize(8) does.
    #[cold]
    fn examine_stream(&self, fd: i32) -> u8 {
        let kind = match option(fd, libc::SO_PROTOCOL) {
            Some(libc::IPPROTO_TCP) => TCP,
            Some(_) => SOCKET,
            None => return self.examine(fd),
        };
        self.kind.store(kind, Ordering::Relaxed);
        kind
    }

    #[cold]
    fn examine(&self, fd: i32) -> u8 {
        let mut found = MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: a live structure; all zeroes are a valid value.
        let found = unsafe {
            if libc::fstat(fd, found.as_mut_ptr()) != 0 {
                return UNKNOWN;
            }
            found.assume_init()
        };
        let kind = match found.st_mode & libc::S_IFMT {
            libc::S_IFSOCK => kind_of_socket(fd),
            libc::S_IFIFO => PIPE,
            0 => COUNTER,
            _ => OTHER,
        };
        self.kind.store(kind, Ordering::Relaxed);
        kind
    }

    /// Forgets the kind, which has turned out to be wrong.
    pub(super) fn is_no_socket(&self) {
        self.kind.store(UNKNOWN, Ordering::Relaxed);
    }

    pub(super) fn is_programs(&self) -> bool {
        self.is_programs.load(Ordering::Relaxed)
    }

    /// Returns the readiness of the file, if somebody has waited for it.
    pub(super) fn source(&self) -> Option<Arc<Source>> {
        kumihimo_runtime::lock(&self.source).clone()
    }

    /// Returns the readiness of the file `fd`.
    pub(super) fn source_of(&self, fd: i32) -> Arc<Source> {
        let mut source = kumihimo_runtime::lock(&self.source);
        source.get_or_insert_with(|| Arc::new(Source::new(fd))).clone()
    }

    /// Has no VP watch the file until somebody waits for it again. Threads that wait now do.
    pub(super) fn unwatch(&self) {
        self.retire(true);
    }

    fn forget(&self, is_open: bool) {
        self.kind.store(UNKNOWN, Ordering::Relaxed);
        self.is_programs.store(false, Ordering::Relaxed);
        self.retire(is_open);
    }

    fn retire(&self, is_open: bool) {
        let source = kumihimo_runtime::lock(&self.source).take();
        if let Some(source) = source {
            source.retire(is_open);
        }
    }
}

fn kind_of_socket(fd: i32) -> u8 {
    match (option(fd, libc::SO_DOMAIN), option(fd, libc::SO_TYPE), option(fd, libc::SO_PROTOCOL)) {
        (_, Some(libc::SOCK_STREAM), Some(libc::IPPROTO_TCP)) => TCP,
        (Some(libc::AF_UNIX), Some(libc::SOCK_DGRAM | libc::SOCK_SEQPACKET), _) => LOCAL_MESSAGES,
        _ => SOCKET,
    }
}

/// An integer option of a socket (socket(7)).
pub(super) fn option(fd: i32, name: i32) -> Option<i32> {
    let mut value = 0;
    let mut bytes = size_of::<i32>() as libc::socklen_t;
    // SAFETY: a live integer and its size.
    let done = unsafe {
        let to = (&raw mut value).cast();
        libc::getsockopt(fd, libc::SOL_SOCKET, name, to, &raw mut bytes)
    };
    (done == 0).then_some(value)
}

/// Notes that the program is about to close `fd`.
pub(super) fn closing(fd: i32) {
    let Some(place) = used(fd) else { return };
    if !phase::has_started() {
        // Nobody waits for it. In a child of vfork(2) this is the parent's table, which asks again.
        place.kind.store(UNKNOWN, Ordering::Relaxed);
    } else if phase::is_of_this_process() {
        place.forget(true);
    }
}

/// Notes that `fd` is a new file of the program. What was known of the number is of an earlier
/// file, which somebody has closed unnoticed.
pub(super) fn made(fd: i32) {
    made_as(fd, UNKNOWN);
}

fn made_as(fd: i32, kind: u8) {
    if phase::has_started() && !phase::is_of_this_process() {
        return;
    }
    let Some(place) = place(fd) else { return };
    // In the child of a fork, where no thread waits, another thread may have held the lock of the
    // source.
    if phase::has_started()
        && (place.kind.load(Ordering::Relaxed) != UNKNOWN || place.source().is_some())
    {
        place.forget(false);
    }
    place.kind.store(kind, Ordering::Relaxed);
    place.is_programs.store(true, Ordering::Relaxed);
}

/// Notes that `fd` is a new socket of the program, made by socket(2) with these arguments.
pub(super) fn made_socket(fd: i32, domain: i32, kind: i32) {
    let kind = kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
    let kind = match (domain, kind) {
        (libc::AF_INET | libc::AF_INET6, libc::SOCK_STREAM) => STREAM,
        (libc::AF_UNIX, libc::SOCK_DGRAM | libc::SOCK_SEQPACKET) => LOCAL_MESSAGES,
        _ => SOCKET,
    };
    made_as(fd, kind);
}

/// Notes that `fd` is a new connection of the program, accepted by the socket `listener`.
pub(super) fn made_connection(listener: i32, fd: i32) {
    made_as(fd, used(listener).map_or(UNKNOWN, |place| place.kind.load(Ordering::Relaxed)));
}

/// Whether the program has made `fd` by a function of this library.
pub(super) fn is_programs(fd: i32) -> bool {
    used(fd).is_some_and(Place::is_programs)
}
