//! Channel of a mount, through which requests arrive and replies leave.

use std::io;

use kumihimo::fuse::{Device, Several};
use kumihimo::sync::{Arc, Mutex, PoisonError};

use crate::protocol::negotiate::REQUEST;
use crate::protocol::service::{Answer, Service};
use crate::protocol::wire::{Message, Reply};

/// Service and the channel of its mount.
#[derive(Clone, Debug)]
pub struct Mounted {
    /// Service that handles the mount's requests.
    pub service: Arc<Service>,
    /// Channel of the mount's requests.
    pub device: Arc<Device>,
}

/// Receives requests and sends replies, for one or more mounts.
#[derive(Debug)]
pub struct Intake {
    mounts: Vec<Mounted>,
    wait: Wait,
}

/// How a thread waits for the next request.
#[derive(Debug)]
enum Wait {
    /// In the kernel, which wakes one thread for each request.
    Kernel,
    /// In user mode: one thread waits for the channel and the others for its lock, so that a
    /// request wakes one thread only. A thread releases the lock before it handles its request.
    Turns(Mutex<Buffer>),
    /// As `Turns`, for all mounts together.
    All(Mutex<Buffer>, Several),
}

impl Intake {
    /// Creates an intake of one mount, for threads that wait in the kernel.
    ///
    /// # Errors
    /// As fcntl(2).
    pub fn blocking(mount: Mounted) -> io::Result<Intake> {
        let flags = rustix::fs::fcntl_getfl(&*mount.device)?;
        rustix::fs::fcntl_setfl(&*mount.device, flags - rustix::fs::OFlags::NONBLOCK)?;
        Ok(Intake { mounts: vec![mount], wait: Wait::Kernel })
    }

    /// Creates an intake for threads that wait in user mode.
    ///
    /// # Errors
    /// As epoll_create1(2), for several mounts.
    pub fn by_turns(mounts: Vec<Mounted>) -> io::Result<Intake> {
        let wait = match &mounts[..] {
            [_] => Wait::Turns(Mutex::new(Buffer::whole())),
            several => {
                let devices = several.iter().map(|mount| Arc::clone(&mount.device)).collect();
                Wait::All(Mutex::new(Buffer::whole()), Several::new(devices)?)
            }
        };
        Ok(Intake { mounts, wait })
    }

    /// Receives the next request. Returns the number of its mount and the request, or `None` once
    /// all mounts have ended.
    pub(crate) fn receive<'a>(&self, buffer: &'a mut Buffer) -> Option<(usize, &'a [u8])> {
        let (mount, length) = match &self.wait {
            Wait::Kernel => (0, received(|| self.mounts[0].device.receive(buffer.room()))?),
            Wait::Turns(turn) => {
                let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                let length = received(|| self.mounts[0].device.receive(turn.room()))?;
                (0, buffer.take(turn.first(length)))
            }
            Wait::All(turn, all) => {
                let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
                let (mount, length) = received(|| all.receive(turn.room()))?;
                (mount, buffer.take(turn.first(length)))
            }
        };
        Some((mount, buffer.first(length)))
    }

    /// Handles a request of mount `mount` and sends the reply.
    pub(crate) fn handle(&self, mount: usize, request: &[u8], reply: &mut Reply) {
        let mount = &self.mounts[mount];
        if mount.service.handle(Message::whole(request), reply) == Answer::Send {
            send(&mount.device, reply);
        }
    }
}

/// Memory for a request. A request may contain a megabyte of data, but most have about a hundred
/// bytes. Receivers that take turns share one large buffer and copy the request from it.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<u8>);

/// Capacity that a buffer keeps between requests.
const KEPT: usize = 64 << 10;

impl Buffer {
    /// Creates a buffer with room for any request.
    pub(crate) fn whole() -> Buffer {
        Buffer(vec![0; REQUEST])
    }

    /// Returns room for any request.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.0.len() < REQUEST {
            self.0.resize(REQUEST, 0);
        }
        &mut self.0
    }

    pub(crate) fn first(&self, count: usize) -> &[u8] {
        &self.0[..count]
    }

    /// Copies a request into the buffer; returns its length.
    fn take(&mut self, request: &[u8]) -> usize {
        if self.0.capacity() > KEPT && request.len() <= KEPT {
            self.0 = Vec::new();
        }
        self.0.clear();
        self.0.extend_from_slice(request);
        request.len()
    }
}

/// Repeats `receive` until it returns a request. Returns `None` once the mount has ended.
pub(crate) fn received<T>(mut receive: impl FnMut() -> io::Result<T>) -> Option<T> {
    loop {
        match receive() {
            Ok(request) => return Some(request),
            Err(e) => match rustix::io::Errno::from_io_error(&e) {
                // Unmounted, or the connection was aborted by a privileged user.
                Some(rustix::io::Errno::NODEV) => return None,
                // The request was interrupted before it was received, or a signal arrived.
                Some(
                    rustix::io::Errno::NOENT | rustix::io::Errno::INTR | rustix::io::Errno::AGAIN,
                ) => {}
                // Unmounted while the request was being received (fs/fuse/dev.c, fuse_dev_do_read).
                // The next call returns ENODEV.
                Some(rustix::io::Errno::CONNABORTED) => {}
                _ => {
                    eprintln!(
                        "fuse: receiving requests failed: {e}; the mount is no longer served"
                    );
                    return None;
                }
            },
        }
    }
}

/// Sends a reply. Ignores the case that the calling process or the mount no longer exists.
pub(crate) fn send(device: &Device, reply: &Reply) {
    let Err(e) = device.send(&[io::IoSlice::new(reply.message())]) else { return };
    match rustix::io::Errno::from_io_error(&e) {
        Some(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => {}
        _ => eprintln!("fuse: sending a reply failed: {e}"),
    }
}

#[cfg(test)]
mod tests;
