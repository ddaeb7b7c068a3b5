//! The process at the other end of a socket.

use std::os::fd::AsFd;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::io::Errno;

/// The process at the other end, as the kernel reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its effective user when it connected, or listened.
    pub(crate) uid: u32,
    /// `None` where it is in a pid namespace that this one cannot see into.
    pub(crate) pid: Option<u32>,
}

impl std::fmt::Display for Peer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.pid {
            Some(pid) => write!(f, "process {pid} of user {}", self.uid),
            None => write!(f, "a process of user {}", self.uid),
        }
    }
}

impl Peer {
    pub(crate) fn of(socket: &impl AsFd) -> Result<Peer, Errno> {
        let peer =
            getsockopt(socket, PeerCredentials).map_err(|e| Errno::from_raw_os_error(e as i32))?;
        Ok(Peer { uid: peer.uid(), pid: u32::try_from(peer.pid()).ok().filter(|pid| *pid > 0) })
    }
}
