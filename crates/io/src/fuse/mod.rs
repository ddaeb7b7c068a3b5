//! The kernel's channel to a server of files: `/dev/fuse`.
//!
//! What goes through it is the server's affair; this is waiting for it as everything else here
//! waits.
//!
//! Source: the manual page fuse(4); `fs/fuse/dev.c` and `include/uapi/linux/fuse.h` of the kernel.

mod several;
pub mod uring;

use std::io::{self, ErrorKind, IoSlice};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use kumihimo_runtime::readiness::Interest;
use rustix::fs::{Mode, OFlags};

use crate::descriptor::Descriptor;

pub use several::Several;

/// `_IOR(229, 0, uint32_t)`.
const FUSE_DEV_IOC_CLONE: libc::Ioctl = 0x8004_e500_u32 as libc::Ioctl;

/// Whether servers of files run here.
///
/// # Errors
/// `Unsupported`, with the reason: an architecture on which microprocesses are kernel threads.
pub fn supported() -> io::Result<()> {
    kumihimo_runtime::supports("FUSE")
}

/// A channel of a mount, one of several perhaps: each request is received from one of them,
/// whichever asks first, and answered through the same one.
///
/// It has O_NONBLOCK, which is its own: every channel is an open file of its own.
#[derive(Debug)]
pub struct Device {
    descriptor: Descriptor<OwnedFd>,
}

impl Device {
    /// A new one, of no mount yet: mount(2) takes it as `fd=N`.
    ///
    /// # Errors
    /// As open(2): `NotFound` and `ENODEV` where the kernel has no FUSE, `PermissionDenied`.
    /// As [`supported`].
    pub fn open() -> io::Result<Device> {
        supported()?;
        Device::adopt(rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// One that somebody else has opened, as fusermount3(1) does.
    ///
    /// # Errors
    /// As fcntl(2). As [`supported`].
    pub fn adopt(fd: OwnedFd) -> io::Result<Device> {
        supported()?;
        rustix::fs::fcntl_setfl(&fd, rustix::fs::fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Ok(Device { descriptor: Descriptor::new(fd) })
    }

    /// One more channel of the same mount, which has begun: several receive side by side without a
    /// lock in common for what is under way.
    ///
    /// # Errors
    /// As open(2); `InvalidInput` before the mount.
    pub fn another(&self) -> io::Result<Device> {
        let fd = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let of = self.as_fd().as_raw_fd().cast_unsigned();
        // SAFETY: the request reads a u32, which is live.
        match unsafe { libc::ioctl(fd.as_raw_fd(), FUSE_DEV_IOC_CLONE, &raw const of) } {
            0 => Device::adopt(fd),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The next request, whole; how many bytes it has. Blocks the microprocess, or a foreign kernel
    /// thread. A cancellation point.
    ///
    /// # Errors
    /// `ENODEV`: it was unmounted. `EINVAL`: `into` is too small for any request, 8 KiB at least
    /// and the largest write beyond that. `ENOENT`: the request was interrupted just now; ask
    /// again.
    pub fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        self.descriptor.attempt(Interest::Read, || Ok(rustix::io::read(self.as_fd(), &mut *into)?))
    }

    /// As `receive`, but `None` where there is none. Never waits.
    ///
    /// # Errors
    /// As `receive`.
    pub fn try_receive(&self, into: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match rustix::io::read(self.as_fd(), &mut *into) {
                Ok(n) => return Ok(Some(n)),
                Err(rustix::io::Errno::AGAIN) => return Ok(None),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// Answers a request, or notifies: one message, in parts. Never waits.
    ///
    /// # Errors
    /// `ENOENT`: nobody waits for that answer any more. `EINVAL`: it is no answer. `ENODEV`: it was
    /// unmounted.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let whole: usize = parts.iter().map(|part| part.len()).sum();
        loop {
            // A message in one piece goes the shorter way.
            let sent = match parts {
                [one] => rustix::io::write(self.as_fd(), one),
                parts => rustix::io::writev(self.as_fd(), parts),
            };
            match sent {
                Ok(n) if n == whole => return Ok(()),
                Ok(_) => return Err(ErrorKind::WriteZero.into()),
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.inner.as_fd()
    }
}
