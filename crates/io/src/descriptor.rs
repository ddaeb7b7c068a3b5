//! Reading and writing a descriptor of any kind: files, pipes, FIFOs, terminals.
//!
//! There are two classes of files:
//!
//! - Files that can be polled (pipes, FIFOs, terminals, sockets, most devices): an attempt
//!   without waiting, then a wait for readiness. `O_NONBLOCK` is never set, because that flag
//!   belongs to the open file, which other processes may share. Where the kernel accepts
//!   `RWF_NOWAIT`, the attempt is one call; otherwise poll(2) determines whether a plain call would
//!   wait.
//! - Files that cannot be polled (regular files, block devices, directories): a plain call; if it
//!   sleeps, the event source reports that. Direct reads go through the runtime's direct reader.
//!   Without an event source: an attempt for cached data, then `blocking`.
//!
//! Source: the manual pages preadv2(2), poll(2), epoll_ctl(2), pipe(7), fifo(7).

use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use kumihimo_resource::id::Id;
use kumihimo_runtime::park::{self, sleeps_are_told};
use kumihimo_runtime::readiness::{Interest, Seen, Source};
use kumihimo_runtime::syscall_batch::{self, SystemCall};
use kumihimo_runtime::{cancel, direct_read, thread};

use crate::attempt::{self, Outcome};
use crate::handles::Handle;
use crate::limit::Limit;

/// Runs a call that seldom waits for a disk. `blocking` would cost more than most of these calls,
/// so it is used only where no event source reports sleeps.
pub(crate) fn brief<T>(f: impl FnOnce() -> T) -> T {
    if sleeps_are_told() { f() } else { thread::blocking(f) }
}

/// Repeats `f` while signals interrupt it.
pub(crate) fn patient<T>(mut f: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match f() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// How an open file can be read and written without blocking a kernel thread. Determined at the
/// first use. A plain value: Relaxed, since every thread that determines it stores the same.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum FileClass {
    /// Not determined yet.
    Unknown,
    /// Cannot be polled.
    Stored,
    /// Cannot be polled, and an attempt with RWF_NOWAIT waits all the same, or is refused.
    StoredWithoutNowait,
    /// Can be polled; RWF_NOWAIT has not been refused so far.
    Polled,
    /// Can be polled, and refuses RWF_NOWAIT.
    PolledWithoutNowait,
}

impl FileClass {
    fn of(mode: libc::mode_t) -> FileClass {
        match mode & libc::S_IFMT {
            libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK => FileClass::Stored,
            _ => FileClass::Polled,
        }
    }

    fn from(n: u8) -> FileClass {
        [
            FileClass::Unknown,
            FileClass::Stored,
            FileClass::StoredWithoutNowait,
            FileClass::Polled,
            FileClass::PolledWithoutNowait,
        ][usize::from(n)]
    }
}

/// States of [`Descriptor::direct`]: whether positioned reads bypass the page cache.
struct Direct;

impl Direct {
    const UNASKED: u8 = 0;
    const NO: u8 = 1;
    const YES: u8 = 2;
}

/// An object with a descriptor, and its readiness. `source` is dropped first: it must leave its
/// epoll while the descriptor is still open.
#[derive(Debug)]
pub(crate) struct Descriptor<S> {
    source: Source,
    class: AtomicU8,
    /// Whether calls wait although O_NONBLOCK is set on the open file.
    insists: bool,
    /// A [`Direct`], with the ordering of `class`.
    direct: AtomicU8,
    handle: Handle,
    pub(crate) inner: S,
}

impl<S: AsFd> Descriptor<S> {
    pub(crate) fn new(inner: S) -> Descriptor<S> {
        Descriptor::with_class(inner, FileClass::Unknown)
    }

    pub(crate) fn with_class(inner: S, class: FileClass) -> Descriptor<S> {
        let source = Source::new(inner.as_fd().as_raw_fd());
        let handle = Handle::file(inner.as_fd().as_raw_fd());
        let (class, direct) = (AtomicU8::new(class as u8), AtomicU8::new(Direct::UNASKED));
        Descriptor { source, class, insists: false, direct, handle, inner }
    }

    /// Makes calls wait even if other code has set O_NONBLOCK.
    pub(crate) fn insisting(self) -> Descriptor<S> {
        Descriptor { insists: true, ..self }
    }

    /// ID in the resource table.
    pub(crate) fn resource(&self) -> Option<Id> {
        self.handle.id()
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.inner.as_fd().as_raw_fd()
    }

    /// Stores the class for a mode that the caller knows from stat(2).
    pub(crate) fn learn(&self, mode: libc::mode_t) {
        if self.known_class() != FileClass::Unknown {
            return;
        }
        let mut class = FileClass::of(mode);
        // A direct read waits for the disk even with RWF_NOWAIT.
        if class == FileClass::Stored
            && !sleeps_are_told()
            && flags(self.inner.as_fd()) & libc::O_DIRECT != 0
        {
            class = FileClass::StoredWithoutNowait;
        }
        self.class.store(class as u8, Ordering::Relaxed);
    }

    fn known_class(&self) -> FileClass {
        FileClass::from(self.class.load(Ordering::Relaxed))
    }

    pub(crate) fn class(&self) -> io::Result<FileClass> {
        let known = self.known_class();
        if known != FileClass::Unknown {
            return Ok(known);
        }
        self.learn(status(self.inner.as_fd())?.st_mode);
        Ok(self.known_class())
    }

    pub(crate) fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.read_vectored(&mut [IoSliceMut::new(buf)])
    }

    pub(crate) fn read_vectored(&self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        let empty = bufs.iter().all(|b| b.is_empty());
        // SAFETY: an `IoSliceMut` each, which has the layout of `iovec` and is valid for writes.
        self.transfer(Interest::Read, empty, None, |flags, at| unsafe {
            call(
                libc::SYS_preadv2,
                self.inner.as_fd(),
                bufs.as_mut_ptr().cast(),
                bufs.len(),
                at,
                flags,
            )
        })
    }

    pub(crate) fn read_at(&self, buf: &mut [u8], at: u64) -> io::Result<usize> {
        if !buf.is_empty()
            && i64::try_from(at).is_ok()
            && park::waits_as_microprocess()
            && self.goes_to_disk()
        {
            cancel::point();
            match direct_read::read_at(self.inner.as_fd(), buf, at) {
                Some(Err(e))
                    if matches!(
                        e.raw_os_error(),
                        Some(libc::EAGAIN | libc::EINTR | libc::EOPNOTSUPP)
                    ) => {}
                Some(done) => return done,
                None => {}
            }
        } else if syscall_batch::follows_another(self.fd(), at, buf.len())
            && self.class()? == FileClass::Stored
            && nowait_is_right()
        {
            cancel::point();
            match syscall_batch::call(
                SystemCall::ReadAt { file: self.inner.as_fd(), into: buf, at },
                true,
            ) {
                // Not cached, or unsupported by the file system.
                Err(e)
                    if matches!(
                        e.raw_os_error(),
                        Some(libc::EAGAIN | libc::EOPNOTSUPP | libc::EINTR)
                    ) => {}
                done => return done,
            }
        }
        let mut buf = IoSliceMut::new(buf);
        // SAFETY: as above.
        self.transfer(Interest::Read, buf.is_empty(), Some(at), |flags, at| unsafe {
            call(libc::SYS_preadv2, self.inner.as_fd(), (&raw mut buf).cast(), 1, at, flags)
        })
    }

    /// Whether reads bypass the page cache, and the file system can start them without blocking:
    /// only then no kernel thread blocks for them.
    fn goes_to_disk(&self) -> bool {
        match self.direct.load(Ordering::Relaxed) {
            Direct::UNASKED => self.ask_direct(),
            direct => direct == Direct::YES,
        }
    }

    #[cold]
    fn ask_direct(&self) -> bool {
        // On a pipe the flag selects packet mode, and a probing read from a device could consume
        // data.
        let direct = flags(self.inner.as_fd()) & libc::O_DIRECT != 0
            && matches!(self.class(), Ok(FileClass::Stored | FileClass::StoredWithoutNowait))
            && self.takes_nowait();
        self.direct.store(if direct { Direct::YES } else { Direct::NO }, Ordering::Relaxed);
        direct
    }

    /// Probes with a direct read of one block: an empty read would succeed anywhere.
    fn takes_nowait(&self) -> bool {
        #[repr(align(4096))]
        struct Block([u8; 4096]);
        let mut block = Box::new(Block([0; 4096]));
        let mut iov = IoSliceMut::new(&mut block.0);
        // SAFETY: one vector, valid for writes.
        let read = || unsafe {
            call(
                libc::SYS_preadv2,
                self.inner.as_fd(),
                (&raw mut iov).cast(),
                1,
                0,
                libc::RWF_NOWAIT,
            )
        };
        nowait_is_right() && brief(read).err().is_none_or(|e| e.kind() == ErrorKind::WouldBlock)
    }

    /// Reads to the end of `buf`'s capacity at most.
    pub(crate) fn read_spare(&self, buf: &mut Vec<u8>) -> io::Result<usize> {
        let spare = buf.spare_capacity_mut();
        let iov = libc::iovec { iov_base: spare.as_mut_ptr().cast(), iov_len: spare.len() };
        // SAFETY: the spare capacity is valid for writes.
        let n = self.transfer(Interest::Read, iov.iov_len == 0, None, |flags, at| unsafe {
            call(libc::SYS_preadv2, self.inner.as_fd(), &raw const iov, 1, at, flags)
        })?;
        // SAFETY: the kernel has written the first n bytes of the spare capacity.
        unsafe { buf.set_len(buf.len() + n) };
        Ok(n)
    }

    pub(crate) fn write(&self, buf: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(buf)])
    }

    pub(crate) fn write_vectored(&self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        // A plain write waits until everything is written, but poll(2) guarantees room for PIPE_BUF
        // bytes only: a write that relies on poll(2) is limited to that.
        let first = bufs
            .iter()
            .find(|b| !b.is_empty())
            .map_or(&[][..], |b| &b[..b.len().min(libc::PIPE_BUF)]);
        let first = IoSlice::new(first);
        let empty = bufs.iter().all(|b| b.is_empty());
        self.transfer(Interest::Write, empty, None, |flags, at| {
            let some = flags == 0 && self.known_class() == FileClass::PolledWithoutNowait;
            let bufs = if some { std::slice::from_ref(&first) } else { bufs };
            // SAFETY: an `IoSlice` each, which has the layout of `iovec` and is valid for reads.
            unsafe {
                call(
                    libc::SYS_pwritev2,
                    self.inner.as_fd(),
                    bufs.as_ptr().cast(),
                    bufs.len(),
                    at,
                    flags,
                )
            }
        })
    }

    pub(crate) fn write_at(&self, buf: &[u8], at: u64) -> io::Result<usize> {
        let buf = IoSlice::new(buf);
        // SAFETY: as above.
        self.transfer(Interest::Write, buf.is_empty(), Some(at), |flags, at| unsafe {
            call(libc::SYS_pwritev2, self.inner.as_fd(), (&raw const buf).cast(), 1, at, flags)
        })
    }

    /// Calls `transfer` with flags and offset (-1: the position of the open file) in the way that
    /// the class of the file requires. An `empty` transfer never waits.
    fn transfer(
        &self,
        interest: Interest,
        empty: bool,
        at: Option<u64>,
        mut transfer: impl FnMut(libc::c_int, i64) -> io::Result<usize>,
    ) -> io::Result<usize> {
        cancel::point();
        let at = match at {
            None => -1,
            Some(at) => {
                i64::try_from(at).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?
            }
        };
        match self.class()? {
            FileClass::Polled | FileClass::PolledWithoutNowait if !empty => {
                self.when_ready(interest, |flags| transfer(flags, at))
            }
            _ if sleeps_are_told() => patient(|| transfer(0, at)),
            // Buffered writes are copies into memory; few file systems take RWF_NOWAIT for them.
            FileClass::Stored if interest == Interest::Read && nowait_is_right() => {
                match transfer(libc::RWF_NOWAIT, at) {
                    Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                        self.class.store(FileClass::StoredWithoutNowait as u8, Ordering::Relaxed);
                        thread::blocking(|| patient(|| transfer(0, at)))
                    }
                    Err(e)
                        if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
                    {
                        thread::blocking(|| patient(|| transfer(0, at)))
                    }
                    done => done,
                }
            }
            _ => thread::blocking(|| patient(|| transfer(0, at))),
        }
    }

    /// Repeats `attempt`, which takes flags, until it returns something other than `WouldBlock` or
    /// `Interrupted`; waits for readiness in between.
    fn when_ready<T>(
        &self,
        interest: Interest,
        mut attempt: impl FnMut(libc::c_int) -> io::Result<T>,
    ) -> io::Result<T> {
        let mut limit = None;
        attempt::attempt(
            &self.source,
            interest,
            false,
            || {
                let outcome = if self.known_class() == FileClass::PolledWithoutNowait {
                    match poll(self.inner.as_fd(), interest, Some(Duration::ZERO)) {
                        // Another reader or writer may take the data or room first.
                        Ok(true) => brief(|| attempt(0)),
                        Ok(false) => Err(ErrorKind::WouldBlock.into()),
                        Err(e) => Err(e),
                    }
                } else {
                    attempt(libc::RWF_NOWAIT)
                };
                match outcome {
                    Err(e) if e.kind() == ErrorKind::Interrupted => Outcome::Repeat,
                    Err(e)
                        if e.raw_os_error() == Some(libc::EOPNOTSUPP)
                            && self.known_class() == FileClass::Polled =>
                    {
                        self.class.store(FileClass::PolledWithoutNowait as u8, Ordering::Relaxed);
                        Outcome::Repeat
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock && !self.is_nonblocking() => {
                        Outcome::NotReady
                    }
                    other => Outcome::Ended(other),
                }
            },
            |seen| self.wait(interest, seen, limit.get_or_insert_with(|| Limit::new(None))),
        )
    }

    /// Repeats `attempt`, which never waits, until it returns something other than `WouldBlock` or
    /// `Interrupted`; waits for readiness in between. A cancellation point.
    pub(crate) fn attempt<T>(
        &self,
        interest: Interest,
        mut attempt: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        cancel::point();
        let mut limit = None;
        attempt::attempt(
            &self.source,
            interest,
            false,
            || match patient(&mut attempt) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => Outcome::NotReady,
                other => Outcome::Ended(other),
            },
            |seen| self.wait(interest, seen, limit.get_or_insert_with(|| Limit::new(None))),
        )
    }

    /// Waits until it is ready for `interest`. A cancellation point.
    ///
    /// # Errors
    /// `WouldBlock` instead of a wait if other code has set O_NONBLOCK.
    pub(crate) fn ready(&self, interest: Interest) -> io::Result<()> {
        let is_ready = || match poll(self.inner.as_fd(), interest, Some(Duration::ZERO))? {
            true => Ok(()),
            false => Err(ErrorKind::WouldBlock.into()),
        };
        if self.is_nonblocking() {
            return patient(is_ready);
        }
        self.attempt(interest, is_ready)
    }

    fn wait(&self, interest: Interest, seen: Seen, limit: &Limit) -> io::Result<()> {
        match limit.wait(&self.source, interest, seen, Limit::scope_passed) {
            Ok(()) => Ok(()),
            Err(e) if e.kind() == ErrorKind::TimedOut => Err(e),
            // epoll refuses the descriptor: registered already under the same number (EEXIST), too
            // many watches (ENOSPC), no memory.
            Err(_) => {
                let remaining = limit.remaining()?;
                match thread::blocking(|| {
                    patient(|| poll(self.inner.as_fd(), interest, remaining))
                })? {
                    true => Ok(()),
                    false => Err(Limit::scope_passed()),
                }
            }
        }
    }

    /// Whether O_NONBLOCK is set. Checked only before a wait.
    fn is_nonblocking(&self) -> bool {
        !self.insists && flags(self.inner.as_fd()) & libc::O_NONBLOCK != 0
    }
}

/// `number`: preadv2 or pwritev2.
///
/// # Safety
/// `iov` points to `count` vectors, valid for the access that `number` makes.
unsafe fn call(
    number: libc::c_long,
    fd: BorrowedFd<'_>,
    iov: *const libc::iovec,
    count: usize,
    at: i64,
    flags: libc::c_int,
) -> io::Result<usize> {
    // The kernel refuses more (UIO_MAXIOV); a short transfer is no error.
    let count = count.min(1024);
    let fd = fd.as_raw_fd();
    // By syscall(2), not libc's wrappers: their pthread cancellation points cost two atomic
    // operations. The offset's upper half is 0 on 64 bits.
    // SAFETY: the caller's promise.
    let n = unsafe {
        if count == 1 && flags == 0 {
            // A vector costs a tenth of a cached read.
            let libc::iovec { iov_base, iov_len } = *iov;
            match (number == libc::SYS_preadv2, at) {
                (true, -1) => kumihimo_arch::call!(libc::SYS_read, fd, iov_base, iov_len),
                (true, at) => kumihimo_arch::call!(libc::SYS_pread64, fd, iov_base, iov_len, at),
                (false, -1) => kumihimo_arch::call!(libc::SYS_write, fd, iov_base, iov_len),
                (false, at) => kumihimo_arch::call!(libc::SYS_pwrite64, fd, iov_base, iov_len, at),
            }
        } else {
            kumihimo_arch::call!(number, fd, iov, count, at, 0, flags)
        }
    };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Waits until the descriptor is ready for `interest`; false after `time`.
pub(crate) fn poll(
    fd: BorrowedFd<'_>,
    interest: Interest,
    time: Option<Duration>,
) -> io::Result<bool> {
    let events = match interest {
        Interest::Read => libc::POLLIN | libc::POLLRDHUP,
        Interest::Write => libc::POLLOUT,
    };
    let mut p = libc::pollfd { fd: fd.as_raw_fd(), events, revents: 0 };
    // Rounded up: returning early would be reported as a timeout.
    let ms =
        time.map_or(-1, |t| i32::try_from(t.as_nanos().div_ceil(1_000_000)).unwrap_or(i32::MAX));
    // SAFETY: one live pollfd.
    match unsafe { kumihimo_arch::kernel::poll(&raw mut p, 1, ms) } {
        n if n < 0 => Err(io::Error::last_os_error()),
        n => Ok(n > 0),
    }
}

/// The attributes of an open file: fstat(2).
pub(crate) fn status(fd: BorrowedFd<'_>) -> io::Result<libc::stat> {
    // SAFETY: all-zero is a valid stat, and it is live.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        match libc::fstat(fd.as_raw_fd(), &raw mut stat) {
            0 => Ok(stat),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// Status flags of the open file; 0 on error.
fn flags(fd: BorrowedFd<'_>) -> libc::c_int {
    // SAFETY: F_GETFL takes no pointer.
    unsafe { kumihimo_arch::kernel::fcntl(fd.as_raw_fd(), libc::F_GETFL, 0) }.max(0)
}

/// Linux 5.9 and 5.10 may answer 0 to a read with RWF_NOWAIT before the end of the file
/// (preadv2(2), BUGS).
fn nowait_is_right() -> bool {
    static RIGHT: OnceLock<bool> = OnceLock::new();
    *RIGHT.get_or_init(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        !["5.9.", "5.10."].iter().any(|wrong| release.starts_with(wrong))
    })
}
