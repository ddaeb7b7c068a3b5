//! What can be asked of the kernel in a batch, and what it answers.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

/// The paper's three classes (section 3.2): how long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// It ends by itself, at once.
    NoWait,
    /// It waits for a device, and that certainly ends.
    CertainWait,
    /// It waits for somebody else.
    UnpredictableWait,
}

/// One system call. Its buffers are borrowed until it has its outcome.
///
/// The paper may batch what never waits, and with regret what certainly ends, since the batch
/// returns as a whole. Today's kernel moves the border: a call that would wait can be told to fail
/// with `EAGAIN` instead, so *receiving*, unpredictable in the paper, becomes a call that never
/// waits and is repeated when epoll says so. And it moves it back: what a uring cannot make without
/// waiting it hands to worker threads, which costs more than the entry that it saves; such calls
/// are always plain ([`Kind::is_always_plain`]).
///
/// - `Nop`, getppid(2): the paper's class: no wait; today: the same.
/// - `Recv`, `RecvMessage`: the paper's class: unpredictable wait; today: no wait: `MSG_DONTWAIT`,
///   then epoll.
/// - `Send`, `SendVectored`, `SendDatagram`: the paper's class: certain wait; today: no wait:
///   `MSG_DONTWAIT`, then epoll.
/// - `ReadAt`: the paper's class: certain wait; today: no wait if cached: `RWF_NOWAIT`; what is not
///   is read by a plain call.
/// - `WriteAt`: the paper's class: certain wait; today: plain: buffered writes go to worker
///   threads.
/// - `Sync`: the paper's class: certain wait; today: plain: always a worker thread.
/// - `Stat`: the paper's class: certain wait; today: plain: always a worker thread.
#[derive(Debug)]
pub enum Op<'a> {
    /// Nothing but the entry: the paper's getpid loop.
    Nop,
    /// recv(2). Never waits.
    Recv {
        /// Of any kind.
        socket: BorrowedFd<'a>,
        /// Where to.
        into: &'a mut [u8],
        /// `MSG_PEEK`, ...; `MSG_DONTWAIT` is added.
        flags: i32,
    },
    /// recvmsg(2). Never waits.
    RecvMessage {
        /// Of any kind.
        socket: BorrowedFd<'a>,
        /// Where to.
        message: &'a Message<'a>,
    },
    /// send(2) on a stream, where the ends of writes mean nothing. Never waits, raises no SIGPIPE.
    Send {
        /// A stream.
        socket: BorrowedFd<'a>,
        /// What.
        from: &'a [u8],
    },
    /// sendmsg(2) on a stream. Never waits, raises no SIGPIPE.
    SendVectored {
        /// A stream.
        socket: BorrowedFd<'a>,
        /// What: at most 1,024 of them.
        from: &'a [IoSlice<'a>],
    },
    /// sendto(2) of one datagram over UDP. Never waits.
    SendDatagram {
        /// A UDP socket.
        socket: BorrowedFd<'a>,
        /// `None`: the peer that it is connected to.
        to: Option<&'a Address>,
        /// What.
        from: &'a [u8],
    },
    /// preadv2(2) with `RWF_NOWAIT`: `WouldBlock` if it is not all in memory, `Unsupported` where
    /// the file system cannot tell.
    ReadAt {
        /// A regular file.
        file: BorrowedFd<'a>,
        /// Where to.
        into: &'a mut [u8],
        /// From where in the file.
        at: u64,
    },
    /// pwrite(2). Waits.
    WriteAt {
        /// A regular file.
        file: BorrowedFd<'a>,
        /// What.
        from: &'a [u8],
        /// Where to in the file.
        at: u64,
    },
    /// fsync(2), or fdatasync(2). Waits.
    Sync {
        /// A file.
        file: BorrowedFd<'a>,
        /// Data only.
        data: bool,
    },
    /// statx(2), basic fields, of a path from the working directory on. Waits.
    Stat {
        /// Where.
        path: &'a CStr,
        /// Where to.
        into: &'a mut libc::statx,
    },
}

/// Several buffers that one receive fills, and what the kernel says of the message.
pub struct Message<'a> {
    /// Written by the kernel while a call that has it is made, and read afterwards. Not `Sync`.
    pub(crate) raw: UnsafeCell<libc::msghdr>,
    _into: PhantomData<&'a mut [u8]>,
}

impl std::fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl<'a> Message<'a> {
    /// With room in the first 1,024 of `into` (the kernel takes no more), and none for descriptors.
    pub fn new(into: &'a mut [IoSliceMut<'_>]) -> Message<'a> {
        // SAFETY: all-zero is a valid msghdr: null pointers with lengths of 0.
        let mut raw: libc::msghdr = unsafe { std::mem::zeroed() };
        // `IoSliceMut` has the layout of `iovec`.
        raw.msg_iov = into.as_mut_ptr().cast();
        raw.msg_iovlen = into.len().min(1024) as _;
        Message { raw: UnsafeCell::new(raw), _into: PhantomData }
    }

    /// Descriptors or credentials came with it, and were dropped.
    pub fn lost_control(&self) -> bool {
        self.header().msg_flags & libc::MSG_CTRUNC != 0
    }

    fn header(&self) -> libc::msghdr {
        // SAFETY: no call is being made with it: those borrow it for as long as they take, on this
        // kernel thread or with its microprocess waiting.
        unsafe { *self.raw.get() }
    }

    fn parts(&self) -> &[libc::iovec] {
        let header = self.header();
        // SAFETY: they are those that `new` has borrowed, in their layout.
        unsafe { std::slice::from_raw_parts(header.msg_iov, header.msg_iovlen as _) }
    }

    fn bytes(&self) -> usize {
        self.parts().iter().map(|part| part.iov_len).sum()
    }

    fn touch(&self) {
        for part in self.parts() {
            // SAFETY: borrowed for writing by `new`, and nobody else looks at them now.
            write(unsafe { std::slice::from_raw_parts_mut(part.iov_base.cast(), part.iov_len) });
        }
    }
}

/// A socket address as the kernel takes it.
#[derive(Clone, Copy)]
pub struct Address {
    pub(crate) raw: libc::sockaddr_storage,
    pub(crate) length: libc::socklen_t,
}

impl std::fmt::Debug for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Address").field(&self.bytes()).finish()
    }
}

impl Address {
    /// The address of `of`.
    pub fn new(of: &std::net::SocketAddr) -> Address {
        // SAFETY: all-zero is a valid sockaddr_storage.
        let mut raw: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let length = match of {
            std::net::SocketAddr::V4(a) => {
                // SAFETY: storage has room and alignment for every kind of address.
                let to = unsafe { &mut *(&raw mut raw).cast::<libc::sockaddr_in>() };
                to.sin_family = libc::AF_INET as libc::sa_family_t;
                to.sin_port = a.port().to_be();
                to.sin_addr.s_addr = u32::from_ne_bytes(a.ip().octets());
                size_of::<libc::sockaddr_in>()
            }
            std::net::SocketAddr::V6(a) => {
                // SAFETY: as above.
                let to = unsafe { &mut *(&raw mut raw).cast::<libc::sockaddr_in6>() };
                to.sin6_family = libc::AF_INET6 as libc::sa_family_t;
                to.sin6_port = a.port().to_be();
                to.sin6_addr.s6_addr = a.ip().octets();
                to.sin6_flowinfo = a.flowinfo();
                to.sin6_scope_id = a.scope_id();
                size_of::<libc::sockaddr_in6>()
            }
        };
        Address { raw, length: length as libc::socklen_t }
    }

    /// What two of the same peer have in common.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes of the storage are filled, all of it is initialised.
        unsafe { std::slice::from_raw_parts((&raw const self.raw).cast(), self.length as usize) }
    }
}

/// Which call, without its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// [`Op::Nop`].
    Nop,
    /// [`Op::Recv`] and [`Op::RecvMessage`].
    Recv,
    /// [`Op::Send`] and [`Op::SendVectored`].
    Send,
    /// [`Op::SendDatagram`].
    Datagram,
    /// [`Op::ReadAt`].
    Read,
    /// [`Op::WriteAt`].
    Write,
    /// [`Op::Sync`].
    Sync,
    /// [`Op::Stat`].
    Stat,
}

/// How many kinds there are.
pub const KINDS: usize = 8;

impl Kind {
    /// All, in the order of their numbers.
    pub const ALL: [Kind; KINDS] = [
        Kind::Nop,
        Kind::Recv,
        Kind::Send,
        Kind::Datagram,
        Kind::Read,
        Kind::Write,
        Kind::Sync,
        Kind::Stat,
    ];

    /// A uring would hand it to a worker thread: 2.3 to 4.8 times the plain call's time. Made by
    /// itself in every batch.
    pub const fn is_always_plain(self) -> bool {
        matches!(self, Kind::Write | Kind::Sync | Kind::Stat)
    }

    /// As the paper classes it.
    pub const fn class(self) -> Class {
        match self {
            Kind::Nop => Class::NoWait,
            Kind::Recv => Class::UnpredictableWait,
            Kind::Send | Kind::Datagram | Kind::Read | Kind::Write | Kind::Sync | Kind::Stat => {
                Class::CertainWait
            }
        }
    }

    /// As the table of figures has it.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Nop => "nop",
            Kind::Recv => "recv",
            Kind::Send => "send",
            Kind::Datagram => "datagram",
            Kind::Read => "pread",
            Kind::Write => "pwrite",
            Kind::Sync => "fsync",
            Kind::Stat => "statx",
        }
    }
}

impl Op<'_> {
    /// Which one.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self {
            Op::Nop => Kind::Nop,
            Op::Recv { .. } | Op::RecvMessage { .. } => Kind::Recv,
            Op::Send { .. } | Op::SendVectored { .. } => Kind::Send,
            Op::SendDatagram { .. } => Kind::Datagram,
            Op::ReadAt { .. } => Kind::Read,
            Op::WriteAt { .. } => Kind::Write,
            Op::Sync { .. } => Kind::Sync,
            Op::Stat { .. } => Kind::Stat,
        }
    }

    /// Bytes that it asks to be moved.
    pub fn bytes(&self) -> usize {
        match self {
            Op::Nop | Op::Sync { .. } | Op::Stat { .. } => 0,
            Op::Recv { into, .. } | Op::ReadAt { into, .. } => into.len(),
            Op::Send { from, .. } | Op::SendDatagram { from, .. } | Op::WriteAt { from, .. } => {
                from.len()
            }
            Op::SendVectored { from, .. } => from.iter().map(|part| part.len()).sum(),
            Op::RecvMessage { message, .. } => message.bytes(),
        }
    }

    /// Makes the pages of its buffers present: a fault inside a batch would keep all of it waiting,
    /// and the virtual processor with it. Here it keeps its own caller waiting only.
    pub fn touch(&mut self) {
        match self {
            Op::Nop | Op::Sync { .. } | Op::Stat { .. } => {}
            Op::Recv { into, .. } | Op::ReadAt { into, .. } => write(into),
            Op::Send { from, .. } | Op::SendDatagram { from, .. } | Op::WriteAt { from, .. } => {
                read(from)
            }
            Op::SendVectored { from, .. } => from.iter().for_each(|part| read(part)),
            Op::RecvMessage { message, .. } => message.touch(),
        }
    }
}

/// What a system call came to: a number of bytes, or an error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(i32);

impl Outcome {
    /// As the kernel tells it in a completion: negative for an error number.
    pub const fn of_raw(raw: i32) -> Outcome {
        Outcome(raw)
    }

    /// As the C library tells it: -1, and errno.
    pub(crate) fn of_call(returned: libc::c_long) -> Outcome {
        if returned < 0 {
            Outcome(-io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
        } else {
            // No call here moves 2 GiB: the kernel stops at 2^31 less a page.
            Outcome(i32::try_from(returned).unwrap_or(i32::MAX))
        }
    }

    /// An error number.
    pub const fn error(errno: i32) -> Outcome {
        Outcome(-errno)
    }

    /// The error number, if it is one.
    pub fn errno(self) -> Option<i32> {
        (self.0 < 0).then_some(-self.0)
    }

    /// Bytes moved, or the error.
    ///
    /// # Errors
    /// As the system call.
    #[inline]
    pub fn result(self) -> io::Result<usize> {
        usize::try_from(self.0).map_err(|_| io::Error::from_raw_os_error(-self.0))
    }
}

const PAGE: usize = 4096;
/// Makes the pages of `bytes` present.
fn read(bytes: &[u8]) {
    for byte in bytes.iter().step_by(PAGE).chain(bytes.last()) {
        // SAFETY: a live reference.
        unsafe { std::ptr::from_ref(byte).read_volatile() };
    }
}

/// The same for writing.
pub(crate) fn write(bytes: &mut [u8]) {
    let last = bytes.len().saturating_sub(1);
    for at in (0..bytes.len()).step_by(PAGE).chain((last > 0).then_some(last)) {
        let byte = &raw mut bytes[at];
        // SAFETY: a live and unique reference; the value stays.
        unsafe { byte.write_volatile(byte.read_volatile()) };
    }
}
