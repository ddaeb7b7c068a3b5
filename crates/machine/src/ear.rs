//! How one address space tells another one that something on the board concerns it: by a datagram
//! to the socket `N.ear`, in which stands the core that the sender runs on.
//!
//! Not by a signal. One to a kernel thread that waits in the kernel ends its system call; and a
//! descriptor that reads signals wakes its reader for each one that comes to any thread of the
//! process (fs/signalfd.c), which are many here: each block and each preemption is a SIGTRAP.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{
    self, AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType,
};

use rustix::thread::sched_getcpu;

use crate::descriptors::Kept;
use crate::error::Error;
use crate::socket;
use crate::space::Number;

/// Longer than any number and `.ear`.
const NAME: usize = 16;

pub(crate) fn ear_name(number: u16) -> String {
    format!("{number}.ear")
}

/// Where an address space hears. Until it is dropped.
pub(crate) struct Ear {
    number: Arc<Number>,
    socket: Kept,
    /// The socket in an epoll set, which is what is waited for. A socket wakes its reader where the
    /// sender runs, as one that is about to sleep (net/core/sock.c, WF_SYNC); a notifier has just
    /// taken that core and goes on. The wake-up by way of the set is an ordinary one
    /// (fs/eventpoll.c, ep_poll_safewake).
    set: Kept,
}

impl Ear {
    /// # Errors
    /// [`Error::Directory`]: full; something was planted under this name. [`Error::Io`]: no
    /// descriptors.
    pub(crate) fn open(number: &Arc<Number>) -> Result<Ear, Error> {
        let name = ear_name(number.number);
        let socket = number.directory.keep(socket::bind(number, &name, SocketType::DGRAM)?);
        let io = |e: Errno| Error::io(name.clone())(e);
        let set = number.directory.keep(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io)?);
        epoll::add(&set, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .map_err(io)?;
        Ok(Ear { number: number.clone(), socket, set })
    }

    /// Whether a notification came since the last time, and from which core, as the last notifier
    /// says: a hint.
    pub(crate) fn heard(&self) -> Option<u32> {
        let mut core = [0; 4];
        let mut last = None;
        // As many as the kernel keeps (net.unix.max_dgram_qlen) and a few: a constant notifier is
        // not to keep the others waiting.
        for _ in 0..32 {
            match net::recv(&self.socket, &mut core[..], RecvFlags::DONTWAIT) {
                Ok(_) => last = Some(u32::from_ne_bytes(core)),
                Err(_) => break,
            }
        }
        last
    }
}

impl AsFd for Ear {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        if std::process::id() == self.number.pid {
            let _ = self.number.directory.remove_socket(&ear_name(self.number.number));
        }
    }
}

/// By which the others of a run-time directory are told.
#[derive(Debug)]
pub(crate) struct Voice {
    socket: Kept,
    /// What the path of an ear begins with.
    prefix: Vec<u8>,
}

impl Voice {
    pub(crate) fn open(number: &Number) -> Result<Voice, Error> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
            .map_err(Error::io("the socket by which neighbours are told"))?;
        let directory = &number.directory;
        // As `Directory::address`, once.
        let through = PathBuf::from(format!("/proc/self/fd/{}", directory.fd.as_fd().as_raw_fd()));
        let whole = if through.exists() { through } else { directory.path().to_owned() };
        let mut prefix = whole.into_os_string().into_encoded_bytes();
        prefix.push(b'/');
        Ok(Voice { socket: directory.keep(socket), prefix })
    }

    /// Allocates nothing and never blocks: a full ear has been told already.
    fn tell(&self, number: u16) {
        let mut path = [0; 108];
        let length = self.prefix.len();
        if length + NAME > path.len() {
            return;
        }
        path[..length].copy_from_slice(&self.prefix);
        let mut rest = &mut path[length..];
        let before = rest.len();
        if write!(rest, "{number}.ear").is_err() {
            return;
        }
        let end = length + before - rest.len();
        if let Ok(address) = SocketAddrUnix::new(&path[..end]) {
            // It fails where there is nobody: then nobody has to hear.
            let core = sched_getcpu() as u32;
            let _ = net::sendto(
                &self.socket,
                &core.to_ne_bytes(),
                SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
                &address,
            );
        }
    }
}

impl Number {
    /// Tells address space `number` of the same directory that something concerns it: its
    /// [`Answer::told`](crate::answer::Answer::told) is called, once for several that come
    /// together. Some microseconds; never blocks, allocates nothing. For nothing where there is
    /// none, or before [`Control::start`](crate::space::Control::start).
    pub fn tell(&self, number: u16) {
        if let Some(voice) = self.voice.get() {
            voice.tell(number);
        }
    }
}
