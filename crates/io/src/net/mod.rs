//! Blocking TCP, UDP and UNIX sockets: `std::net` and `std::os::unix::net`, with `use std` changed
//! to `use kumihimo`.
//!
//! Beyond std: streams in [halves](TcpStream::into_split), [options](SocketBuilder), a [`Server`]
//! that sheds and drains, and sockets [handed over](inherited) from process to process.
//!
//! Every call that would block stops the calling microprocess only; from a plain std thread it
//! blocks that thread, as in std.
//!
//! What differs from std, and what holds for all types here:
//!
//! - **Timeouts** give the same error kinds as std does on Linux: a read or write that exceeds
//!   the socket's timeout fails with [`WouldBlock`](std::io::ErrorKind::WouldBlock),
//!   `connect_timeout` with [`TimedOut`](std::io::ErrorKind::TimedOut). The deadline of an
//!   enclosing scope bounds every wait too, and fails with `TimedOut`, so the two can be told
//!   apart. A call that need not wait succeeds even after the deadline.
//! - **Cancellation**: every call that may wait is a cancellation point. It never shows as
//!   `ErrorKind::Interrupted`; signals do not either: interrupted calls are repeated.
//! - **Options** (timeouts, `set_nonblocking`) are kept beside the socket and shared by its
//!   clones; they are written through to the kernel, but changes made behind our back with
//!   `setsockopt` or `fcntl` on the raw descriptor are not seen. Listeners and datagram sockets
//!   keep `O_NONBLOCK` set on the open file while they are ours: the kernel has no `accept` that is
//!   told per call not to wait, and std's calls for datagrams are not.
//! - **Backlog**: listeners ask for the longest that the machine allows (`net.core.somaxconn`),
//!   not for 128.
//! - **Name resolution** blocks a kernel thread (getaddrinfo has no other way); its virtual
//!   processor goes on with other microprocesses. So does connecting to a UNIX socket whose backlog
//!   is full, which cannot be waited for in any other way; that wait does not end by cancellation.
//! - **Memory**: while the kernel copies into a buffer whose pages do not exist yet, it holds the
//!   socket's lock for the whole page fault, and a second kernel thread at the same socket (a
//!   writer on a clone, say) waits for it. Touch large buffers before their first use. Of an idle
//!   connection that has waited for seconds, the part of its microprocess's stack that is not in
//!   use goes back to the kernel.
//! - **Closing** is as in std: dropping the last handle closes; with a
//!   [linger](TcpStream::set_linger) time that blocks the kernel thread.
//! - **SIGPIPE** is never raised: writing to a peer that is gone is an error.
//! - **Errors of `bind`** that are about the address name it, and say what can be done; they keep
//!   their kind, and have no `raw_os_error`.
//!
//! Source: the manual pages tcp(7), udp(7), unix(7), epoll(7), connect(2).

#[macro_use]
mod traits;
pub(crate) mod address;
mod halves;
pub mod inherited;
mod options;
mod server;
pub(crate) mod socket;
mod tcp;
mod udp;
pub mod unix;
mod unix_datagram;

pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use options::{Keepalive, SocketBuilder, UCred};
pub use server::{Cause, Listener, Server, Tally, Trouble};
pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
    ToSocketAddrs,
};
pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};
