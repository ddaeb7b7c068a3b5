//! The kernel's channel to a file server: `/dev/fuse`.
//!
//! This module transfers messages and blocks the microprocess while none is available. Their
//! contents are up to the server.
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

/// Checks whether file servers can run on this platform.
///
/// # Errors
/// `Unsupported`, with the reason: an architecture on which microprocesses are kernel threads.
///
/// # Examples
///
/// ```
/// use kumihimo::fuse;
///
/// let has_microprocesses = cfg!(all(target_arch = "x86_64", target_env = "gnu"));
/// assert_eq!(fuse::supported().is_ok(), has_microprocesses);
/// ```
pub fn supported() -> io::Result<()> {
    kumihimo_runtime::supports("FUSE")
}

/// A channel of a mount. A mount may have several: each request is received from one of them and
/// answered through the same one.
///
/// O_NONBLOCK is set on it; every channel is an open file of its own, so no other one is affected.
///
/// # Examples
///
/// ```
/// use kumihimo::fuse::Device;
/// use kumihimo::net::UnixDatagram;
/// use std::io::IoSlice;
///
/// // A socket takes the kernel's place here.
/// let (kernel, channel) = UnixDatagram::pair()?;
/// let device = Device::adopt(channel.into())?;
///
/// kernel.send(b"request")?;
/// let mut buffer = vec![0; 8 << 10];
/// let length = device.receive(&mut buffer)?;
/// assert_eq!(&buffer[..length], b"request");
///
/// device.send(&[IoSlice::new(b"reply")])?;
/// assert_eq!(kernel.recv(&mut buffer)?, 5);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Device {
    descriptor: Descriptor<OwnedFd>,
}

impl Device {
    /// Opens a channel that belongs to no mount yet: mount(2) takes it as `fd=N`.
    ///
    /// # Errors
    /// As open(2): `NotFound` and `ENODEV` where the kernel has no FUSE, `PermissionDenied`.
    /// As [`supported`].
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kumihimo::fuse::Device;
    /// use std::os::fd::{AsFd, AsRawFd};
    ///
    /// let device = Device::open()?;
    /// // The options of mount(2) for a file system of type `fuse`.
    /// let fd = device.as_fd().as_raw_fd();
    /// let options = format!("fd={fd},rootmode=40000,user_id=0,group_id=0");
    /// assert!(options.starts_with("fd="));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open() -> io::Result<Device> {
        supported()?;
        Device::adopt(rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// Takes over a channel that another program has opened, as fusermount3(1) does.
    ///
    /// # Errors
    /// As fcntl(2). As [`supported`].
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::fuse::Device;
    /// use kumihimo::net::UnixDatagram;
    /// use std::os::fd::OwnedFd;
    ///
    /// // fusermount3(1) would send the descriptor. A socket takes its place here.
    /// let (kernel, channel) = UnixDatagram::pair()?;
    /// let device = Device::adopt(OwnedFd::from(channel))?;
    /// kernel.send(b"request")?;
    /// assert_eq!(device.receive(&mut [0; 100])?, 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn adopt(fd: OwnedFd) -> io::Result<Device> {
        supported()?;
        rustix::fs::fcntl_setfl(&fd, rustix::fs::fcntl_getfl(&fd)? | OFlags::NONBLOCK)?;
        Ok(Device { descriptor: Descriptor::new(fd) })
    }

    /// Opens a further channel of the same mount, which must be mounted. Several channels receive
    /// in parallel, without a shared lock for requests in progress (`FUSE_DEV_IOC_CLONE`).
    ///
    /// # Errors
    /// As open(2); `InvalidInput` before the mount.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use kumihimo::fuse::Device;
    /// use kumihimo::thread;
    ///
    /// let first = Device::open()?;
    /// // ... mount(2) with the descriptor of `first` ...
    /// let second = first.another()?;
    /// thread::scope(|s| {
    ///     for device in [&first, &second] {
    ///         s.spawn(move || {
    ///             let mut request = vec![0; 1 << 20];
    ///             while let Ok(length) = device.receive(&mut request) {
    ///                 assert!(length >= 40, "a request has a header");
    ///             }
    ///         });
    ///     }
    /// });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn another(&self) -> io::Result<Device> {
        let fd = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        let of = self.as_fd().as_raw_fd().cast_unsigned();
        // SAFETY: the request reads a u32, which is live.
        match unsafe { libc::ioctl(fd.as_raw_fd(), FUSE_DEV_IOC_CLONE, &raw const of) } {
            0 => Device::adopt(fd),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Receives the next request as a whole; returns its length. Blocks the microprocess, or a
    /// foreign kernel thread. A cancellation point.
    ///
    /// # Errors
    /// - `ENODEV`: the file system was unmounted.
    /// - `EINVAL`: `into` is too small. It must have room for the largest write, and 8 KiB at
    ///   least.
    /// - `ENOENT`: the request was interrupted just now; call again.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::fuse::Device;
    /// use kumihimo::net::UnixDatagram;
    /// use kumihimo::thread;
    ///
    /// // A socket takes the kernel's place here.
    /// let (kernel, channel) = UnixDatagram::pair()?;
    /// let device = Device::adopt(channel.into())?;
    /// let server = thread::spawn(move || device.receive(&mut [0; 8 << 10]));
    /// kernel.send(b"request")?;
    /// assert_eq!(server.join().unwrap()?, 7);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn receive(&self, into: &mut [u8]) -> io::Result<usize> {
        self.descriptor.attempt(Interest::Read, || Ok(rustix::io::read(self.as_fd(), &mut *into)?))
    }

    /// As `receive`, but returns `None` if no request is queued. Never waits.
    ///
    /// # Errors
    /// As `receive`.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::fuse::Device;
    /// use kumihimo::net::UnixDatagram;
    ///
    /// // A socket takes the kernel's place here.
    /// let (kernel, channel) = UnixDatagram::pair()?;
    /// let device = Device::adopt(channel.into())?;
    /// assert_eq!(device.try_receive(&mut [0; 100])?, None);
    /// kernel.send(b"request")?;
    /// assert_eq!(device.try_receive(&mut [0; 100])?, Some(7));
    /// # Ok::<(), std::io::Error>(())
    /// ```
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

    /// Sends one message in parts: a reply or a notification. Never waits.
    ///
    /// # Errors
    /// - `ENOENT`: the request was aborted, and no caller waits for the reply.
    /// - `EINVAL`: the message is malformed.
    /// - `ENODEV`: the file system was unmounted.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::fuse::Device;
    /// use kumihimo::net::UnixDatagram;
    /// use std::io::IoSlice;
    ///
    /// // A socket takes the kernel's place here.
    /// let (kernel, channel) = UnixDatagram::pair()?;
    /// let device = Device::adopt(channel.into())?;
    /// // A header and the data, in one message.
    /// device.send(&[IoSlice::new(b"header, "), IoSlice::new(b"data")])?;
    /// let mut message = [0; 12];
    /// kernel.recv(&mut message)?;
    /// assert_eq!(&message, b"header, data");
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
