//! Sockets of an address space in the run-time directory: creation, and connection to those of
//! other address spaces.

use std::os::fd::OwnedFd;
use std::time::Instant;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};

use super::Directory;
use crate::error::Error;
use crate::handler::Refused;
use crate::socket::disposal;
use crate::socket::peer_socket::set_pass_rights;

/// Creates a listening socket. No client finds it half initialised: bind(2) creates the name before
/// the socket listens, and a connection in between fails as one to a process that has ended. So the
/// socket gets its own name when it listens.
pub(crate) fn listen(
    directory: &Directory,
    name: &str,
    of: SocketType,
    backlog: i32,
) -> Result<OwnedFd, Error> {
    directory.remove_socket(name)?;
    let first = format!("{name}.new");
    let socket = bind(directory, &first, of)?;
    net::listen(&socket, backlog)
        .map_err(Error::io(directory.path().join(name).display().to_string()))?;
    directory.rename(&first, name)?;
    Ok(socket)
}

/// Creates a socket under its name, for the own user only. The socket is non-blocking.
pub(crate) fn bind(directory: &Directory, name: &str, of: SocketType) -> Result<OwnedFd, Error> {
    directory.remove_socket(name)?;
    let io = |e: Errno| Error::io(directory.path().join(name).display().to_string())(e);
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(AddressFamily::UNIX, of, flags, None).map_err(io)?;
    // Before a client can connect. A gate's socket admits them for a client that it has let in.
    set_pass_rights(&socket, false);
    // Linux gives the path the mode of the socket's inode, less the umask, so other users never
    // have access.
    fchmod(&socket, Mode::RUSR | Mode::WUSR).map_err(io)?;
    net::bind(&socket, &directory.address(name)?).map_err(|e| directory.failed("", e))?;
    directory.set_socket_mode(name, false)?;
    Ok(socket)
}

/// A connection to a socket of another address space.
pub(crate) struct Reached {
    /// The socket is blocking.
    pub(crate) socket: OwnedFd,
    pub(crate) uid: u32,
    /// 0 if the process is in a pid namespace that is not visible from this one.
    pub(crate) pid: i32,
}

/// Returns the error for a server that has ended: `address space 12`.
pub(crate) fn gone(server: &str, why: &str) -> Error {
    Error::Gone(format!("{server} has ended ({why})"))
}

/// Returns what messages call address space `number`.
pub(crate) fn space(number: u16) -> String {
    format!("address space {number}")
}

/// Connects to `name`, a socket of `server`, as messages call it. Blocks the kernel thread until
/// `deadline` at most.
pub(crate) fn reach(
    directory: &Directory,
    server: &str,
    name: &str,
    of: SocketType,
    deadline: Instant,
) -> Result<Reached, Error> {
    let io = |e: Errno| Error::io(server)(e);
    if !directory.socket(name)? {
        return Err(gone(server, &format!("{name} no longer exists")));
    }
    let address = directory.address(name)?;
    let socket =
        net::socket_with(AddressFamily::UNIX, of, SocketFlags::CLOEXEC, None).map_err(io)?;
    // Answers of a control socket carry no descriptor; those of a gate do.
    set_pass_rights(&socket, of == SocketType::SEQPACKET);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let full = || {
            Error::Timeout(format!(
                "{server} accepts no connection: it is stopped, or too many clients connect at once"
            ))
        };
        if left.is_zero() {
            return Err(full());
        }
        // If the backlog is full, connect blocks, and this timeout limits it; SO_SNDTIMEO
        // in socket(7).
        set_socket_timeout(&socket, Timeout::Send, Some(left)).map_err(io)?;
        match net::connect(&socket, &address) {
            Ok(()) => break,
            Err(Errno::INTR) => {}
            Err(Errno::NOENT) => return Err(gone(server, &format!("{name} no longer exists"))),
            Err(Errno::CONNREFUSED) => {
                return Err(gone(server, &format!("no process listens at {name}")));
            }
            Err(Errno::ACCESS | Errno::PERM) => {
                return Err(Refused::Denied(format!(
                    "{server} belongs to user {} and does not admit this user",
                    directory.owner()
                ))
                .into());
            }
            Err(Errno::AGAIN) => return Err(full()),
            Err(e) => return Err(io(e)),
        }
    }
    let peer =
        getsockopt(&socket, PeerCredentials).map_err(|e| io(Errno::from_raw_os_error(e as i32)))?;
    if peer.uid() != directory.owner() {
        disposal::dispose(peer.uid(), socket);
        return Err(Error::Directory(format!(
            "{}/{name} is served by user {} and not by the directory's owner, user {}; it is not used",
            directory.path().display(),
            peer.uid(),
            directory.owner()
        )));
    }
    Ok(Reached { socket, uid: peer.uid(), pid: peer.pid() })
}

#[cfg(test)]
mod tests;
