//! Sender of notifications: a datagram to the socket of another address space's core listener.

use std::io::Write;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use rustix::net::{self, AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::thread::sched_getcpu;

use super::{Directory, LISTENER_SUFFIX};
use crate::error::Error;
use crate::socket::descriptors::Kept;

/// Capacity for any number with [`LISTENER_SUFFIX`].
const NAME: usize = 16;

/// Sends notifications to the other address spaces of a run-time directory.
#[derive(Debug)]
pub(crate) struct CoreNotifier {
    socket: Kept,
    /// The path of a listener up to its number.
    prefix: Vec<u8>,
}

impl CoreNotifier {
    pub(crate) fn open(directory: &Directory) -> Result<CoreNotifier, Error> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = net::socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None)
            .map_err(Error::io("the socket for notifications"))?;
        // Same path as `Directory::address`, computed once.
        let through = PathBuf::from(format!("/proc/self/fd/{}", directory.fd.as_fd().as_raw_fd()));
        let whole = if through.exists() { through } else { directory.path().to_owned() };
        let mut prefix = whole.into_os_string().into_encoded_bytes();
        prefix.push(b'/');
        Ok(CoreNotifier { socket: directory.keep(socket), prefix })
    }

    /// Notifies address space `number`. Allocates nothing and never blocks: if the socket is full,
    /// a notification is already pending.
    pub(crate) fn notify(&self, number: u16) {
        let mut path = [0; 108];
        let length = self.prefix.len();
        if length + NAME > path.len() {
            return;
        }
        path[..length].copy_from_slice(&self.prefix);
        let mut rest = &mut path[length..];
        let before = rest.len();
        if write!(rest, "{number}{LISTENER_SUFFIX}").is_err() {
            return;
        }
        let end = length + before - rest.len();
        if let Ok(address) = SocketAddrUnix::new(&path[..end]) {
            // The send fails if no address space listens; then no notification is needed.
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
