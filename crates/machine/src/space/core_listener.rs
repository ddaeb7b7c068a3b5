//! Socket at which an address space receives notifications of changes on the board that concern it.
//!
//! A notification is a datagram to the socket `N.ear`; it contains the core on which the sender
//! runs ([`crate::directory::core_notifier`] sends it).
//!
//! A signal would be less suitable. A signal to a kernel thread that waits in the kernel ends its
//! system call. A signalfd wakes its reader for every signal to any thread of the process
//! (fs/signalfd.c), and these are frequent: each block and each preemption is a SIGTRAP.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::SocketType;

use super::number::Number;
use crate::directory::{listener_name, socket};
use crate::error::Error;
use crate::socket::descriptors::Kept;
use crate::socket::peer_socket::{PeerSocket, Pending};

/// A notification carries a descriptor, which only a sender of another make does.
pub(crate) struct PassedDescriptor;

/// The socket at which an address space is notified, until this value is dropped.
pub(crate) struct CoreListener {
    number: Arc<Number>,
    socket: PeerSocket,
    /// An epoll set that contains the socket, on which the thread waits. A direct wait on the
    /// socket would wake the thread on the sender's core, under the assumption that the sender is
    /// about to sleep (net/core/sock.c, WF_SYNC). But a notifier has just taken that core and
    /// continues. A wake-up through the epoll set is an ordinary one (fs/eventpoll.c,
    /// ep_poll_safewake).
    set: Kept,
}

impl CoreListener {
    /// Opens the socket and the epoll set.
    ///
    /// # Errors
    /// Returns [`Error::Directory`] if the directory is full or a foreign entry has this name, and
    /// [`Error::Io`] if no descriptor is available.
    pub(crate) fn open(number: &Arc<Number>) -> Result<CoreListener, Error> {
        let name = listener_name(number.number);
        let socket =
            number.directory.keep(socket::bind(&number.directory, &name, SocketType::DGRAM)?);
        let socket = PeerSocket::opaque(socket, number.directory.owner());
        let io = |e: Errno| Error::io(name.clone())(e);
        let set = number.directory.keep(epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io)?);
        epoll::add(&set, &socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
            .map_err(io)?;
        Ok(CoreListener { number: number.clone(), socket, set })
    }

    /// Consumes pending notifications. Returns `None` if there are none, and otherwise the core in
    /// the last one, as a hint.
    ///
    /// # Errors
    /// A sender passes a descriptor, which cannot be discarded here. The listener is to be dropped.
    pub(crate) fn take_notification(&self) -> Result<Option<u32>, PassedDescriptor> {
        let mut core = [0; 4];
        let mut last = None;
        // Somewhat more than the kernel queues (net.unix.max_dgram_qlen). The bound keeps a
        // constant sender from delaying other work of the thread.
        for _ in 0..32 {
            match self.socket.receive(&mut core) {
                Ok(Pending::Descriptor) => return Err(PassedDescriptor),
                Ok(_) => last = Some(u32::from_ne_bytes(core)),
                Err(_) => break,
            }
        }
        Ok(last)
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
