//! One wait for the channels of several mounts.

use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use kumihimo_runtime::readiness::Interest;
use rustix::event::epoll;
use rustix::io::Errno;

use super::Device;
use crate::descriptor::Descriptor;

/// The channels of several mounts, from which one receiver takes requests in turn, so that none is
/// starved by another.
///
/// # Examples
///
/// ```
/// use kumihimo::fuse::{Device, Several};
/// use kumihimo::net::UnixDatagram;
/// use std::sync::Arc;
///
/// // Sockets take the kernel's place here.
/// let (first_kernel, first) = UnixDatagram::pair()?;
/// let (second_kernel, second) = UnixDatagram::pair()?;
/// let several = Several::new(vec![
///     Arc::new(Device::adopt(first.into())?),
///     Arc::new(Device::adopt(second.into())?),
/// ])?;
///
/// let mut request = [0; 100];
/// second_kernel.send(b"to the second")?;
/// assert_eq!(several.receive(&mut request)?, (1, 13));
/// first_kernel.send(b"to the first")?;
/// assert_eq!(several.receive(&mut request)?, (0, 12));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Several {
    /// An epoll instance, which is readable while one of the channels is (epoll(7)).
    epoll: Descriptor<OwnedFd>,
    devices: Vec<Member>,
    /// Index of the channel that is tried first. Relaxed: any value is correct.
    next: AtomicUsize,
}

#[derive(Debug)]
struct Member {
    device: Arc<Device>,
    has_ended: AtomicBool,
}

impl Several {
    /// Combines these channels.
    ///
    /// # Errors
    /// As epoll_create1(2) and epoll_ctl(2).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::fuse::{Device, Several};
    /// use kumihimo::net::UnixDatagram;
    /// use std::sync::Arc;
    ///
    /// // A socket takes the kernel's place here.
    /// let (kernel, channel) = UnixDatagram::pair()?;
    /// let several = Several::new(vec![Arc::new(Device::adopt(channel.into())?)])?;
    /// kernel.send(b"request")?;
    /// assert_eq!(several.receive(&mut [0; 100])?, (0, 7));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn new(devices: Vec<Arc<Device>>) -> io::Result<Several> {
        let set = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (number, device) in (0..).zip(&devices) {
            epoll::add(&set, &**device, epoll::EventData::new_u64(number), epoll::EventFlags::IN)?;
        }
        let devices = devices
            .into_iter()
            .map(|device| Member { device, has_ended: AtomicBool::new(false) })
            .collect();
        Ok(Several { epoll: Descriptor::new(set), devices, next: AtomicUsize::new(0) })
    }

    /// Receives the next request from any of them; returns the index of the channel and the length
    /// of the request. Blocks the microprocess, or a foreign kernel thread. A cancellation point.
    ///
    /// # Errors
    /// `ENODEV`: all were unmounted. Otherwise as [`Device::receive`].
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::fuse::{Device, Several};
    /// use kumihimo::net::UnixDatagram;
    /// use std::sync::Arc;
    ///
    /// // Sockets take the kernel's place here.
    /// let (kernels, devices): (Vec<_>, Vec<_>) = (0..3)
    ///     .map(|_| {
    ///         let (kernel, channel) = UnixDatagram::pair().unwrap();
    ///         (kernel, Arc::new(Device::adopt(channel.into()).unwrap()))
    ///     })
    ///     .unzip();
    /// let several = Several::new(devices)?;
    /// for kernel in &kernels {
    ///     kernel.send(b"request")?;
    /// }
    /// // One request of each, in turn.
    /// for number in 0..3 {
    ///     assert_eq!(several.receive(&mut [0; 100])?, (number, 7));
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn receive(&self, into: &mut [u8]) -> io::Result<(usize, usize)> {
        self.epoll.attempt(Interest::Read, || self.look(into))
    }

    fn look(&self, into: &mut [u8]) -> io::Result<(usize, usize)> {
        let (first, all) = (self.next.load(Ordering::Relaxed), self.devices.len());
        let mut ended = 0;
        for number in (first..first + all).map(|number| number % all) {
            let member = &self.devices[number];
            if member.has_ended.load(Ordering::Relaxed) {
                ended += 1;
                continue;
            }
            match member.device.try_receive(into) {
                Ok(Some(length)) => {
                    self.next.store((number + 1) % all, Ordering::Relaxed);
                    return Ok((number, length));
                }
                Ok(None) => {}
                Err(e) if Errno::from_io_error(&e) == Some(Errno::NODEV) => {
                    // What has ended is readable for ever.
                    let _ = epoll::delete(&self.epoll.inner, &*member.device);
                    member.has_ended.store(true, Ordering::Relaxed);
                    ended += 1;
                }
                Err(e) => return Err(e),
            }
        }
        Err(if ended == all { Errno::NODEV.into() } else { ErrorKind::WouldBlock.into() })
    }
}
