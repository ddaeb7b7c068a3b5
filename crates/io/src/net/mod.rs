//! Blocking TCP, UDP and UNIX sockets: `std::net` and `std::os::unix::net`, with `use std` changed
//! to `use kumihimo`.
//!
//! Beyond std: streams split into [halves](TcpStream::into_split), [options](SocketBuilder), a
//! [`Server`] that sheds load and drains, and sockets [handed over](inherited) between processes.
//!
//! Every call that would block stops the calling microprocess only; from a plain std thread it
//! blocks that thread, as in std.
//!
//! Differences from std, and properties that all types here share:
//!
//! - **Timeouts** give the same error kinds as std does on Linux: a read or write that exceeds the
//!   socket's timeout fails with [`WouldBlock`](std::io::ErrorKind::WouldBlock), `connect_timeout`
//!   with [`TimedOut`](std::io::ErrorKind::TimedOut). The deadline of an enclosing scope bounds
//!   every wait too, and fails with `TimedOut`, so the two can be told apart. A call that need not
//!   wait succeeds even after the deadline.
//! - **Cancellation**: every call that may wait is a cancellation point. Neither cancellation nor a
//!   signal causes `ErrorKind::Interrupted`: interrupted calls are repeated.
//! - **Options** (timeouts, `set_nonblocking`) are kept beside the socket and shared by its clones.
//!   They are written through to the kernel, but changes made with `setsockopt` or `fcntl` on the
//!   raw descriptor are not seen. Listeners and datagram sockets keep `O_NONBLOCK` set on the open
//!   file while this crate owns them: `accept` has no flag for a call that does not wait, and std's
//!   datagram calls do not pass one.
//! - **Backlog**: listeners request the longest backlog that the machine allows
//!   (`net.core.somaxconn`), not 128.
//! - **Name resolution** blocks a kernel thread, since getaddrinfo(3) has no other mode; its
//!   virtual processor continues with other microprocesses. Connecting to a UNIX socket whose
//!   backlog is full blocks a kernel thread for the same reason, and that wait does not end by
//!   cancellation.
//! - **Memory**: while the kernel copies into a buffer whose pages do not exist yet, it holds the
//!   socket's lock for the whole page fault. A second kernel thread at the same socket (a writer on
//!   a clone, for example) waits for it. Touch large buffers before their first use. After seconds
//!   without data, the unused part of the waiting microprocess's stack is returned to the kernel.
//! - **Closing** is as in std: dropping the last handle closes; with a
//!   [linger](TcpStream::set_linger) time that blocks the kernel thread.
//! - **SIGPIPE** is never raised: writing to a peer that is gone is an error.
//! - **Errors of `bind`** that concern the address name it and advise what to do. They keep their
//!   kind, and have no `raw_os_error`.
//!
//! Source: the manual pages tcp(7), udp(7), unix(7), epoll(7), connect(2).

// One file for each type; `options.rs`, `unix_options.rs`,
// `socket_builder.rs` and `halves.rs` add what std lacks. A call goes down from
// the type (`TcpStream::read` in `tcp.rs`) to `stream.rs` or `datagram.rs`, which make one attempt,
// and to `Socket::attempt` in `socket.rs`, which waits for readiness in between. `address.rs`
// resolves names and connects. `server/` and `inherited.rs` stand above the types. Nothing here
// uses `fs`, `io` or `process`.

mod address;
mod datagram;
mod halves;
pub mod inherited;
mod options;
mod server;
mod socket;
mod socket_builder;
mod stream;
mod tcp;
mod udp;
pub mod unix;
mod unix_datagram;
mod unix_options;

pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
pub use options::Keepalive;
pub use server::{Cause, Listener, Server, Tally, Trouble};
pub use socket_builder::SocketBuilder;
pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
    ToSocketAddrs,
};
pub use tcp::{Incoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixDatagram, UnixListener, UnixStream};
pub use unix_options::UCred;
