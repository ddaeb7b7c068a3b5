//! What an organisation gives to the server: the only thing in which two of them differ.

use std::io;
use std::time::Duration;

use kumihimo::fuse::{Device, Several};
use kumihimo::sync::{Arc, Mutex, PoisonError};
use kumihimo_store::{Disk, FileDisk};

use crate::negotiate::REQUEST;
use crate::organisation::Mounted;
use crate::service::Answer;
use crate::wire::{Message, Reply};

/// An organisation's kind of thread, and how such a thread waits: for messages, for the disk, for
/// time. Locks are not here: `kumihimo::sync`'s block their caller.
pub trait Environment: Send + Sync + 'static {
    /// Begins a thread that nobody waits for.
    ///
    /// # Errors
    /// That there is no memory for it, or too many.
    fn spawn(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<()>;

    /// Whether each of its threads serves all mounts. Else each mount has threads of its own.
    fn serves_all(&self) -> bool {
        false
    }

    /// Where the requests of these mounts come in: one or several places, over which `threads` that
    /// receive are spread.
    ///
    /// # Errors
    /// As opening `/dev/fuse`.
    fn intakes(&self, mounts: &[Mounted], threads: usize) -> io::Result<Vec<Arc<Intake>>>;

    /// The most threads of a pool.
    fn most(&self) -> usize;

    /// The store's disk as such a thread accesses it.
    fn disk(&self, disk: FileDisk) -> Box<dyn Disk>;

    /// Lets time pass for the thread that calls.
    fn pause(&self) -> fn(Duration);
}

/// A place where requests come in and replies go out.
#[derive(Debug)]
pub struct Intake {
    mounts: Vec<Mounted>,
    wait: Wait,
}

/// How a thread waits for the next request.
#[derive(Debug)]
enum Wait {
    /// In the kernel, which wakes one for each request.
    Kernel,
    /// In user mode: one does and the others wait for their turn, so that one wait of the kernel's
    /// ends. It gives the turn on before it handles what it has received.
    Turns(Mutex<Buffer>),
    /// So, and for all mounts at once.
    All(Mutex<Buffer>, Several),
}

impl Intake {
    /// Of one mount, for threads that wait in the kernel.
    ///
    /// # Errors
    /// As fcntl(2).
    pub fn blocking(mount: Mounted) -> io::Result<Intake> {
        let flags = rustix::fs::fcntl_getfl(&*mount.device)?;
        rustix::fs::fcntl_setfl(&*mount.device, flags - rustix::fs::OFlags::NONBLOCK)?;
        Ok(Intake { mounts: vec![mount], wait: Wait::Kernel })
    }

    /// For threads that wait in user mode.
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

    /// The next request, and of which mount it is; `None` when all have ended.
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

    /// Handles a request of that mount and sends the reply.
    pub(crate) fn handle(&self, mount: usize, request: &[u8], reply: &mut Reply) {
        let mount = &self.mounts[mount];
        if mount.service.handle(Message::whole(request), reply) == Answer::Send {
            send(&mount.device, reply);
        }
    }
}

/// Memory for a request. Any may have a megabyte of data, and nearly all have a hundred bytes:
/// receivers that take turns share the large one, and take from there what was received.
#[derive(Debug, Default)]
pub(crate) struct Buffer(Vec<u8>);

/// So much of it is kept from one request to the next.
const KEPT: usize = 64 << 10;

impl Buffer {
    /// With room for any request.
    pub(crate) fn whole() -> Buffer {
        Buffer(vec![0; REQUEST])
    }

    /// Room for any request.
    pub(crate) fn room(&mut self) -> &mut [u8] {
        if self.0.len() < REQUEST {
            self.0.resize(REQUEST, 0);
        }
        &mut self.0
    }

    pub(crate) fn first(&self, count: usize) -> &[u8] {
        &self.0[..count]
    }

    /// Copies a request; how long it is.
    fn take(&mut self, request: &[u8]) -> usize {
        if self.0.capacity() > KEPT && request.len() <= KEPT {
            self.0 = Vec::new();
        }
        self.0.clear();
        self.0.extend_from_slice(request);
        request.len()
    }
}

/// Receives until `receive` gives something; `None` when the mount has ended.
pub(crate) fn received<T>(mut receive: impl FnMut() -> io::Result<T>) -> Option<T> {
    loop {
        match receive() {
            Ok(request) => return Some(request),
            Err(e) => match rustix::io::Errno::from_io_error(&e) {
                // Unmounted; or the connection was aborted by a privileged user.
                Some(rustix::io::Errno::NODEV) => return None,
                // Interrupted before it was received; or a signal came.
                Some(
                    rustix::io::Errno::NOENT | rustix::io::Errno::INTR | rustix::io::Errno::AGAIN,
                ) => {}
                // Unmounted while the request was on its way (fs/fuse/dev.c, fuse_dev_do_read): the
                // next one says so.
                Some(rustix::io::Errno::CONNABORTED) => {}
                _ => {
                    eprintln!("fuse: cannot receive requests any more: {e}");
                    return None;
                }
            },
        }
    }
}

/// Sends a reply. The asking process may have gone, and the mount too: neither is an error.
pub(crate) fn send(device: &Device, reply: &Reply) {
    let Err(e) = device.send(&[io::IoSlice::new(reply.message())]) else { return };
    match rustix::io::Errno::from_io_error(&e) {
        Some(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => {}
        _ => eprintln!("fuse: a reply could not be sent: {e}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// (It was said on standard error, as if the mount had failed.)
    #[test]
    fn an_unmount_in_the_middle_of_a_request_is_an_unmount() {
        use rustix::io::Errno;
        let mut says = [Errno::CONNABORTED, Errno::NODEV].into_iter();
        let received = received::<()>(|| Err(says.next().expect("not after the end").into()));
        assert_eq!((received, says.next()), (None, None));
    }

    #[test]
    fn room_for_large_requests_is_let_go_by_small_ones() {
        let mut buffer = Buffer::default();
        let large = vec![7; 500_000];
        assert_eq!(buffer.take(&large), large.len());
        assert_eq!(buffer.first(large.len()), large);
        assert_eq!(buffer.take(b"small"), 5);
        assert_eq!(buffer.first(5), b"small");
        assert!(buffer.0.capacity() < KEPT);
        assert_eq!(buffer.room().len(), REQUEST);
    }
}
