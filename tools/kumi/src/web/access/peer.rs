//! The user at the other end of a local connection.
//!
//! Every user of the machine can connect to a port of the loopback interface, and a browser sends
//! the cookies of `127.0.0.1` to every port there. So a secret in a cookie is not enough: the
//! kernel states which user owns the other end, and only the server's own user and root are
//! admitted.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, netlink, recv, send, socket};

/// `SOCK_DIAG_BY_FAMILY`, `NLM_F_REQUEST` and the protocol TCP.
const BY_FAMILY: u16 = 20;
const REQUEST: u16 = 1;
const TCP: u8 = 6;
/// Length of the header of a message, and of the ports and addresses of a socket in it.
const HEADER: usize = 16;
const ENDS: usize = 36;
/// Time for the kernel's answer, which it gives within send(2).
const ANSWER: Duration = Duration::from_secs(1);

/// Whether a user may connect: the server's own one, and root.
pub fn may_connect(user: u32) -> bool {
    user == rustix::process::geteuid().as_raw() || user == 0
}

/// Whether the other end of a TCP connection on the loopback interface is a socket of a user that
/// may connect. True where the kernel says nothing about sockets: the token protects all the same.
pub fn is_admitted(peer: SocketAddr, own: SocketAddr) -> bool {
    match owner(peer, own) {
        Ok(Some(Owner { user, inode })) => inode != 0 && may_connect(user),
        Ok(None) => false,
        Err(_) => true,
    }
}

/// The owner of a socket. A socket that its process has closed has no inode, and user 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Owner {
    user: u32,
    inode: u64,
}

/// The owner of the socket `at` that is connected to `to`.
fn owner(at: SocketAddr, to: SocketAddr) -> io::Result<Option<Owner>> {
    // A kernel without the module answers as if there were no socket.
    match asked(at, to) {
        Ok(Some(owner)) => Ok(Some(owner)),
        Ok(None) | Err(_) => listed(at, to),
    }
}

/// Ports and addresses of a socket, as `struct inet_diag_sockid` begins.
fn ends(at: SocketAddr, to: SocketAddr) -> [u8; ENDS] {
    let mut ends = [0; ENDS];
    ends[..2].copy_from_slice(&at.port().to_be_bytes());
    ends[2..4].copy_from_slice(&to.port().to_be_bytes());
    for (place, address) in [(4, at.ip()), (20, to.ip())] {
        match address {
            IpAddr::V4(address) => ends[place..place + 4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => ends[place..place + 16].copy_from_slice(&address.octets()),
        }
    }
    ends
}

/// Asks the kernel for one socket (sock_diag(7)).
fn asked(at: SocketAddr, to: SocketAddr) -> io::Result<Option<Owner>> {
    let kernel = socket(AddressFamily::NETLINK, SocketType::DGRAM, Some(netlink::SOCK_DIAG))?;
    set_socket_timeout(&kernel, Timeout::Recv, Some(ANSWER))?;
    let family = if at.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let ends = ends(at, to);
    let mut request = Vec::new();
    request.extend_from_slice(&72u32.to_ne_bytes());
    request.extend_from_slice(&BY_FAMILY.to_ne_bytes());
    request.extend_from_slice(&REQUEST.to_ne_bytes());
    request.extend_from_slice(&[0; 8]);
    request.extend_from_slice(&[family.as_raw() as u8, TCP, 0, 0]);
    // All states, any interface, and no cookie.
    request.extend_from_slice(&u32::MAX.to_ne_bytes());
    request.extend_from_slice(&ends);
    request.extend_from_slice(&[0; 4]);
    request.extend_from_slice(&[0xff; 8]);
    send(&kernel, &request, SendFlags::empty())?;
    let mut answer = [0; 1024];
    let (_, length) = recv(&kernel, &mut answer[..], RecvFlags::empty())?;
    Ok(answered(&answer[..length.min(answer.len())], &ends))
}

/// Reads the kernel's answer. An error, or another socket such as a listener at that port, is none.
fn answered(answer: &[u8], ends: &[u8; ENDS]) -> Option<Owner> {
    let word = |at: usize| {
        answer.get(at..at + 4)?.try_into().ok().map(|bytes: [u8; 4]| u32::from_ne_bytes(bytes))
    };
    if answer.get(4..6)? != BY_FAMILY.to_ne_bytes() {
        return None;
    }
    // The socket follows family, state, timer and retransmissions.
    if answer.get(HEADER + 4..HEADER + 4 + ENDS)? != ends {
        return None;
    }
    Some(Owner { user: word(HEADER + 64)?, inode: word(HEADER + 68)?.into() })
}

/// Searches the list of all sockets (proc_net(5)).
fn listed(at: SocketAddr, to: SocketAddr) -> io::Result<Option<Owner>> {
    let (at, to) = (listed_end(at), listed_end(to));
    let path = if at.len() > 13 { "/proc/self/net/tcp6" } else { "/proc/self/net/tcp" };
    let list = fs::read_to_string(path)?;
    Ok(list.lines().skip(1).find_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.get(1)? != &at || words.get(2)? != &to {
            return None;
        }
        Some(Owner { user: words.get(7)?.parse().ok()?, inode: words.get(9)?.parse().ok()? })
    }))
}

/// An end as that list has it: words of the address in the machine's order, and the port.
fn listed_end(end: SocketAddr) -> String {
    let octets = match end.ip() {
        IpAddr::V4(address) => address.octets().to_vec(),
        IpAddr::V6(address) => address.octets().to_vec(),
    };
    let word = |four: &[u8]| {
        format!("{:08X}", u32::from_ne_bytes(four.try_into().expect("chunks of four")))
    };
    let address: String = octets.chunks_exact(4).map(word).collect();
    format!("{address}:{:04X}", end.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn owner_of_a_loopback_connection_is_found() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let own = listener.local_addr().expect("bound");
            let client = TcpStream::connect(own).expect("connected");
            let (_server, peer) = listener.accept().expect("accepted");
            let me = rustix::process::geteuid().as_raw();
            for (name, owner) in [("asked", asked(peer, own)), ("listed", listed(peer, own))] {
                // Where neither works, `is_admitted` relies on the token.
                if let Ok(Some(owner)) = owner {
                    assert_eq!(owner.user, me, "{name}");
                    assert_ne!(owner.inode, 0, "{name}");
                }
            }
            assert!(is_admitted(peer, own));
            drop(client);
            assert!(!is_admitted(peer, own), "its process has closed it");
        }
    }

    #[test]
    fn answers_about_other_sockets_are_none() {
        let (at, to) = ("127.0.0.1:5".parse().unwrap(), "127.0.0.1:6".parse().unwrap());
        let ends = ends(at, to);
        let mut answer = vec![0; HEADER + 72];
        answer[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
        answer[HEADER + 4..HEADER + 4 + ENDS].copy_from_slice(&ends);
        answer[HEADER + 64..HEADER + 68].copy_from_slice(&1000u32.to_ne_bytes());
        answer[HEADER + 68] = 7;
        assert_eq!(answered(&answer, &ends), Some(Owner { user: 1000, inode: 7 }));
        for length in 0..HEADER + 72 {
            assert_eq!(answered(&answer[..length], &ends), None, "{length}");
        }
        answer[HEADER + 5] ^= 1;
        assert_eq!(answered(&answer, &ends), None, "another port");
        answer[4] = 2;
        assert_eq!(answered(&answer, &ends), None, "an error");
    }

    #[test]
    fn list_of_sockets_has_words_of_this_machine() {
        assert_eq!(listed_end("127.0.0.1:8080".parse().unwrap()), "0100007F:1F90");
        assert_eq!(
            listed_end("[::1]:80".parse().unwrap()),
            "00000000000000000000000001000000:0050"
        );
    }
}
