//! The system calls that can be batched, and their outcomes.

use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::io::{self, IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;

/// The paper's three classes (section 3.2): how long a call may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The call ends by itself, at once.
    NoWait,
    /// The call waits for a device and is certain to end.
    CertainWait,
    /// The call waits for another party.
    UnpredictableWait,
}

/// One system call. Its buffers are borrowed until it has its outcome.
///
/// The paper batches calls that never wait and, reluctantly, calls that certainly end, since the
/// batch returns as a whole. On today's kernels the classes differ. A call that would wait can fail
/// with `EAGAIN` instead. So *receiving*, unpredictable in the paper, becomes a call that never
/// waits and is repeated when epoll reports readiness. On the other hand, a uring hands a request
/// that would wait to worker threads. That costs more than the entry that it saves. Such calls are
/// always plain ([`Kind::is_always_plain`]).
///
/// The class in the paper, and the execution here:
///
/// - `Nop`, getppid(2). Paper: no wait. Here: no wait.
/// - `Recv`, `RecvMessage`. Paper: unpredictable wait. Here: no wait, by `MSG_DONTWAIT`; then
///   epoll.
/// - `Send`, `SendVectored`, `SendDatagram`. Paper: certain wait. Here: no wait, by `MSG_DONTWAIT`;
///   then epoll.
/// - `ReadAt`. Paper: certain wait. Here: no wait if cached, by `RWF_NOWAIT`; otherwise a plain
///   call reads.
/// - `WriteAt`. Paper: certain wait. Here: plain, since buffered writes go to worker threads.
/// - `Sync`. Paper: certain wait. Here: plain, since it always goes to a worker thread.
/// - `Stat`. Paper: certain wait. Here: plain, since it always goes to a worker thread.
#[derive(Debug)]
pub enum Op<'a> {
    /// No work besides the kernel entry: the paper's getpid loop.
    Nop,
    /// recv(2). Never waits.
    Recv {
        /// A socket of any kind.
        socket: BorrowedFd<'a>,
        /// The buffer to fill.
        into: &'a mut [u8],
        /// Flags such as `MSG_PEEK`; `MSG_DONTWAIT` is added.
        flags: i32,
    },
    /// recvmsg(2). Never waits.
    RecvMessage {
        /// A socket of any kind.
        socket: BorrowedFd<'a>,
        /// The buffers to fill.
        message: &'a Message<'a>,
    },
    /// send(2) on a stream, where the boundaries of writes have no meaning. Never waits, raises no
    /// SIGPIPE.
    Send {
        /// A stream socket.
        socket: BorrowedFd<'a>,
        /// The bytes to send.
        from: &'a [u8],
    },
    /// sendmsg(2) on a stream. Never waits, raises no SIGPIPE.
    SendVectored {
        /// A stream socket.
        socket: BorrowedFd<'a>,
        /// The buffers to send, at most 1,024.
        from: &'a [IoSlice<'a>],
    },
    /// sendto(2) of one datagram over UDP. Never waits.
    SendDatagram {
        /// A UDP socket.
        socket: BorrowedFd<'a>,
        /// The address of the peer, or `None` for a connected socket.
        to: Option<&'a Address>,
        /// The bytes to send.
        from: &'a [u8],
    },
    /// preadv2(2) with `RWF_NOWAIT`. Fails with `WouldBlock` if part of the range is not in memory,
    /// and with `Unsupported` if the file system does not support the flag.
    ReadAt {
        /// A regular file.
        file: BorrowedFd<'a>,
        /// The buffer to fill.
        into: &'a mut [u8],
        /// The offset in the file.
        at: u64,
    },
    /// pwrite(2). Waits.
    WriteAt {
        /// A regular file.
        file: BorrowedFd<'a>,
        /// The bytes to write.
        from: &'a [u8],
        /// The offset in the file.
        at: u64,
    },
    /// fsync(2), or fdatasync(2). Waits.
    Sync {
        /// A file.
        file: BorrowedFd<'a>,
        /// Whether only the data is synchronised (fdatasync).
        data: bool,
    },
    /// statx(2) of a path, relative to the working directory; basic fields. Waits.
    Stat {
        /// The path.
        path: &'a CStr,
        /// The result.
        into: &'a mut libc::statx,
    },
}

/// The buffers that one receive fills, and the message's flags.
pub struct Message<'a> {
    /// Written by the kernel during a call that uses it, and read afterwards. Not `Sync`.
    pub(crate) raw: UnsafeCell<libc::msghdr>,
    _into: PhantomData<&'a mut [u8]>,
}

impl std::fmt::Debug for Message<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl<'a> Message<'a> {
    /// Creates a message with the first 1,024 of `into` (the kernel accepts no more), and without
    /// room for descriptors.
    pub fn new(into: &'a mut [IoSliceMut<'_>]) -> Message<'a> {
        // SAFETY: all zeros is a valid msghdr: null pointers with lengths of 0.
        let mut raw: libc::msghdr = unsafe { std::mem::zeroed() };
        // `IoSliceMut` has the layout of `iovec`.
        raw.msg_iov = into.as_mut_ptr().cast();
        raw.msg_iovlen = into.len().min(1024) as _;
        Message { raw: UnsafeCell::new(raw), _into: PhantomData }
    }

    /// Returns whether descriptors or credentials arrived with the message and were dropped.
    pub fn lost_control(&self) -> bool {
        self.header().msg_flags & libc::MSG_CTRUNC != 0
    }

    fn header(&self) -> libc::msghdr {
        // SAFETY: no call with this message is in progress. A call borrows the message until it
        // ends, on this kernel thread or while its microprocess waits.
        unsafe { *self.raw.get() }
    }

    fn parts(&self) -> &[libc::iovec] {
        let header = self.header();
        // SAFETY: the slices that `new` borrowed, in their layout.
        unsafe { std::slice::from_raw_parts(header.msg_iov, header.msg_iovlen as _) }
    }

    fn bytes(&self) -> usize {
        self.parts().iter().map(|part| part.iov_len).sum()
    }

    fn touch(&self) {
        for part in self.parts() {
            // SAFETY: borrowed for writing by `new`, and no other thread reads them now.
            write(unsafe { std::slice::from_raw_parts_mut(part.iov_base.cast(), part.iov_len) });
        }
    }
}

/// A socket address in the kernel's format.
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
    /// Converts a socket address.
    pub fn new(of: &std::net::SocketAddr) -> Address {
        // SAFETY: all zeros is a valid sockaddr_storage.
        let mut raw: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let length = match of {
            std::net::SocketAddr::V4(a) => {
                // SAFETY: the storage has room and alignment for every kind of address.
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

    /// Returns the bytes of the address; they are equal for equal peers.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes of the storage are filled, all of it is initialised.
        unsafe { std::slice::from_raw_parts((&raw const self.raw).cast(), self.length as usize) }
    }
}

/// The kind of a system call, without its arguments.
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

/// The number of kinds.
pub const KINDS: usize = 8;

impl Kind {
    /// All kinds, in the order of their numbers.
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

    /// Returns whether a batch makes this call by a plain system call of its own. A uring would
    /// hand it to a worker thread, which takes 2.3 to 4.8 times as long as the plain call.
    pub const fn is_always_plain(self) -> bool {
        matches!(self, Kind::Write | Kind::Sync | Kind::Stat)
    }

    /// Returns the paper's class of the call.
    pub const fn class(self) -> Class {
        match self {
            Kind::Nop => Class::NoWait,
            Kind::Recv => Class::UnpredictableWait,
            Kind::Send | Kind::Datagram | Kind::Read | Kind::Write | Kind::Sync | Kind::Stat => {
                Class::CertainWait
            }
        }
    }

    /// Returns the name in the table of figures.
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
    /// Returns the kind of the call.
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

    /// Returns the number of bytes that the call requests to move.
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

    /// Faults the pages of the buffers in. A page fault inside a batch would delay the whole batch,
    /// and the virtual processor with it. Here it delays only the caller.
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

/// The outcome of a system call: a number of bytes, or an error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome(i32);

impl Outcome {
    /// Converts the result of a completion: negative for an error number.
    pub const fn of_raw(raw: i32) -> Outcome {
        Outcome(raw)
    }

    /// Converts the result of a C library call: -1, with errno.
    pub(crate) fn of_call(returned: libc::c_long) -> Outcome {
        if returned < 0 {
            Outcome(-io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO))
        } else {
            // No call here moves 2 GiB: the kernel stops at 2^31 bytes less a page.
            Outcome(i32::try_from(returned).unwrap_or(i32::MAX))
        }
    }

    /// Creates the outcome of a failed call.
    pub const fn error(errno: i32) -> Outcome {
        Outcome(-errno)
    }

    /// Returns the error number of a failed call.
    pub fn errno(self) -> Option<i32> {
        (self.0 < 0).then_some(-self.0)
    }

    /// Returns the number of bytes moved.
    ///
    /// # Errors
    /// Those of the system call.
    #[inline]
    pub fn result(self) -> io::Result<usize> {
        usize::try_from(self.0).map_err(|_| io::Error::from_raw_os_error(-self.0))
    }
}

const PAGE: usize = 4096;
/// Faults the pages of `bytes` in.
fn read(bytes: &[u8]) {
    for byte in bytes.iter().step_by(PAGE).chain(bytes.last()) {
        // SAFETY: a live reference.
        unsafe { std::ptr::from_ref(byte).read_volatile() };
    }
}

/// As [`read`], for writing.
pub(crate) fn write(bytes: &mut [u8]) {
    let last = bytes.len().saturating_sub(1);
    for at in (0..bytes.len()).step_by(PAGE).chain((last > 0).then_some(last)) {
        let byte = &raw mut bytes[at];
        // SAFETY: a live and unique reference; the value does not change.
        unsafe { byte.write_volatile(byte.read_volatile()) };
    }
}
