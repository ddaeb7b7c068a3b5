//! A socket to a peer, whose queue may hold descriptors that the peer passes.
//!
//! The last reference to a passed descriptor is dropped by the thread that receives or discards the
//! message, and by the thread that closes the socket. That close may block: see [`disposal`]. So:
//!
//! - Where no descriptor is to be passed, the kernel refuses it to the sender (`SO_PASSRIGHTS`,
//!   Linux 6.16).
//! - Before Linux 6.16, and where descriptors may be passed, a message is received in two steps:
//!   it is looked at without being removed, and removed only if it carries no descriptor, or one
//!   whose close does not block.
//! - A socket is closed at once if its queue holds no descriptor, and by [`disposal`] otherwise.

use std::os::fd::{AsFd, BorrowedFd};

use nix::libc;
use nix::sys::socket::{getsockopt, setsockopt, sockopt::PassCred};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use rustix::io::Errno;
use rustix::net::sockopt::socket_type;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, Shutdown, SocketType, recv,
    recvmsg, shutdown,
};

use crate::socket::descriptors::Kept;
use crate::socket::disposal;

/// Number of `SO_PASSRIGHTS`, which the C library does not name yet; the same on all architectures
/// of Kumihimo.
const SO_PASSRIGHTS: libc::c_int = 83;

sockopt_impl!(
    /// Whether descriptors may be passed to a socket.
    PassRights,
    Both,
    libc::SOL_SOCKET,
    SO_PASSRIGHTS,
    bool
);

/// Most messages that are discarded to find out that a queue holds no descriptor. A sender's buffer
/// of the default size holds some 300.
const MOST_DISCARDED: usize = 1024;
/// Bytes that are discarded at once.
const PART: usize = 16 << 10;

/// Has the kernel refuse descriptors that peers pass to `socket`, and to those that it accepts; or
/// admit them. Without effect before Linux 6.16.
pub fn set_pass_rights(socket: &impl AsFd, admits: bool) {
    let _ = setsockopt(socket, PassRights, &admits);
}

/// What has come.
#[derive(Debug)]
pub enum Pending {
    /// The queue is empty, and the peer sends no more.
    End,
    /// This many bytes, without a descriptor; a datagram may have more.
    Plain(usize),
    /// Something that carries a descriptor, which is still in the queue.
    Descriptor,
}

/// Looks at the next message, without removing it. A stream's bytes count as one message up to the
/// first with a descriptor.
///
/// # Errors
/// Returns the error of recvmsg(2).
pub fn peek(socket: &impl AsFd, into: &mut [u8]) -> Result<Pending, Errno> {
    let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
    let mut nothing = RecvAncillaryBuffer::default();
    let came = recvmsg(socket, &mut [std::io::IoSliceMut::new(into)], &mut nothing, flags)?;
    Ok(match came.bytes {
        // Ancillary data that found no room: a descriptor, since nothing else is asked for.
        _ if came.flags.contains(ReturnFlags::CTRUNC) => Pending::Descriptor,
        0 => Pending::End,
        bytes => Pending::Plain(bytes),
    })
}

/// A socket to a peer. Dropping it never blocks, whatever the peer has passed.
#[derive(Debug)]
pub struct PeerSocket {
    /// `None` only in `drop`.
    socket: Option<Kept>,
    /// The user of the peer.
    uid: u32,
    /// The kernel refused descriptors from the beginning.
    refuses: bool,
    /// Its queue is not looked through: it is a listener, or shared with a fork's child.
    opaque: bool,
}

impl PeerSocket {
    /// A connection whose other end is user `uid`.
    #[must_use]
    pub fn new(socket: Kept, uid: u32) -> PeerSocket {
        PeerSocket::with(socket, uid, false)
    }

    /// A socket whose queue is not looked through, and whose connection is not ended, when it is
    /// dropped: a listener, whose connections that were not accepted have queues too, or one that a
    /// fork's child may drop.
    #[must_use]
    pub fn opaque(socket: Kept, uid: u32) -> PeerSocket {
        PeerSocket::with(socket, uid, true)
    }

    fn with(socket: Kept, uid: u32, opaque: bool) -> PeerSocket {
        let refuses = getsockopt(&socket, PassRights).is_ok_and(|admits| !admits);
        PeerSocket { socket: Some(socket), uid, refuses, opaque }
    }

    /// Returns whether the kernel has refused descriptors that the peer passes since the socket
    /// exists.
    #[must_use]
    pub fn refuses_descriptors(&self) -> bool {
        self.refuses
    }

    /// Admits descriptors that the peer passes from now on.
    pub fn admit_descriptors(&mut self) {
        self.refuses = false;
        set_pass_rights(self, true);
    }

    /// Returns the user of the peer.
    #[must_use]
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Receives bytes of a stream, or a datagram, that have come, unless a descriptor is with them:
    /// then nothing is received, and the connection is to be dropped.
    ///
    /// # Errors
    /// Returns the error of recvmsg(2) or recv(2).
    pub fn receive(&self, into: &mut [u8]) -> Result<Pending, Errno> {
        let mut most = into.len();
        if !self.refuses {
            match peek(self, into)? {
                // No more than was looked at: a descriptor may follow.
                Pending::Plain(bytes) => most = bytes,
                // Or an empty datagram.
                Pending::End => most = 0,
                Pending::Descriptor => return Ok(Pending::Descriptor),
            }
        }
        match recv(self, &mut into[..most], RecvFlags::DONTWAIT)? {
            (_, 0) => Ok(Pending::End),
            (_, bytes) => Ok(Pending::Plain(bytes)),
        }
    }
}

impl AsFd for PeerSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Some(socket) => socket.as_fd(),
            None => unreachable!(),
        }
    }
}

impl Drop for PeerSocket {
    fn drop(&mut self) {
        let Some(socket) = self.socket.take() else { return };
        // In a fork's child it is a copy, whose socket is the parent's.
        let closes = socket.is_forgotten() || self.refuses;
        if closes || !self.opaque && is_free_of_descriptors(&socket) {
            return drop(socket);
        }
        disposal::dispose(self.uid, socket);
    }
}

/// Ends a connection in both directions, and discards what it has received up to the first message
/// with a descriptor. Returns whether there is none.
fn is_free_of_descriptors(socket: &Kept) -> bool {
    // Nothing is queued after this.
    if shutdown(socket, Shutdown::Both).is_err() {
        // It was never connected.
        return true;
    }
    // Each message then carries its sender's credentials, which tells an empty one from the end.
    if setsockopt(socket, PassCred, &true).is_err() {
        return false;
    }
    let mut bytes = [0; PART];
    for _ in 0..MOST_DISCARDED {
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut room);
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let mut part = [std::io::IoSliceMut::new(&mut bytes)];
        let came = match recvmsg(socket, &mut part, &mut ancillary, flags) {
            Ok(came) => came,
            // Reported once: the peer has closed with something unread.
            Err(Errno::INTR | Errno::CONNRESET) => continue,
            Err(_) => return false,
        };
        if came.flags.contains(ReturnFlags::CTRUNC) {
            return false;
        }
        let of_sender = |message| matches!(message, RecvAncillaryMessage::ScmCredentials(_));
        let is_message = ancillary.drain().any(of_sender);
        // A stream has no empty messages, and its end has credentials too.
        let is_end = || came.bytes == 0 && socket_type(socket) == Ok(SocketType::STREAM);
        if !is_message || is_end() {
            return true;
        }
        // A datagram is discarded whole.
        let _ = recv(socket, &mut bytes[..came.bytes.min(PART)], RecvFlags::DONTWAIT);
    }
    false
}

#[cfg(test)]
mod tests;
