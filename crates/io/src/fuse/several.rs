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
