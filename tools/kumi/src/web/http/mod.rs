//! HTTP/1.1 on the sockets of Kumihimo, in blocking code with strict limits.
//!
//! `transport` is a connection with a deadline, plain or with TLS (`tls`). `request` reads requests
//! from it, and `response` writes what answers them. Uses no other room of `web`.

pub mod request;
pub mod response;
pub mod tls;
pub mod transport;
