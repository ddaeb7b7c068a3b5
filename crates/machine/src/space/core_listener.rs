//! Socket at which an address space receives notifications: something on the board concerns it.
//!
//! A notification is a datagram to the socket `N.ear`; it contains the core that the
//! sender runs on ([`crate::directory::core_notifier`] sends it).
//!
//! Not a signal. One to a kernel thread that waits in the kernel ends its system call; and a
//! descriptor that reads signals wakes its reader for each one that comes to any thread of the
//! process (fs/signalfd.c), which are many here: each block and each preemption is a SIGTRAP.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SocketType};

use super::number::Number;
use crate::descriptors::Kept;
use crate::directory::{listener_name, socket};
use crate::error::Error;

/// The socket at which an address space is notified, until it is dropped.
pub(crate) struct CoreListener {
    number: Arc<Number>,
    socket: Kept,
    /// The socket in an epoll set, which is what is waited for. A socket wakes its reader where the
    /// sender runs, as one that is about to sleep (net/core/sock.c, WF_SYNC); a notifier has just
    /// taken that core and goes on. The wake-up by way of the set is an ordinary one
    /// (fs/eventpoll.c, ep_poll_safewake).
    set: Kept,
}

impl CoreListener {
    /// # Errors
    /// [`Error::Directory`]: full; something was planted under this name. [`Error::Io`]: no
    /// descriptors.
    pub(crate) fn open(number: &Arc<Number>) -> Result<CoreListener, Error> {
        let name = listener_name(number.number);
        let socket =
            number.directory.keep(socket::bind(&number.directory, &name, SocketType::DGRAM)?);
        let io = |e: Errno| Error::io(name.clone())(e);
        let set = number.directory.keep(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io)?);
        epoll::add(&set, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .map_err(io)?;
        Ok(CoreListener { number: number.clone(), socket, set })
    }

    /// Whether a notification came since the last time, and from which core, as the last notifier
    /// says: a hint.
    pub(crate) fn take_notification(&self) -> Option<u32> {
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

impl AsFd for CoreListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.set.as_fd()
    }
}

impl Drop for CoreListener {
    fn drop(&mut self) {
        if std::process::id() == self.number.pid {
            let _ = self.number.directory.remove_socket(&listener_name(self.number.number));
        }
    }
}
