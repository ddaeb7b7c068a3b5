//! Connections of the workloads `redis`, `http` and `ureq`.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use redis::{Client, ConnectionLike};
use ureq::Agent;
use ureq::config::Config;

/// How a contender connects.
pub trait Connections: 'static {
    /// A connection to a Redis server.
    type Redis: ConnectionLike;
    /// A TCP listener.
    type Listener;
    /// A connection that it has accepted.
    type Stream: Read + Write + Send + 'static;

    /// Connects to a Redis server on 127.0.0.1.
    fn redis(port: u16) -> Self::Redis;

    /// Listens on 127.0.0.1. Returns the port, too.
    ///
    /// # Errors
    /// As listen(2).
    fn listen() -> io::Result<(Self::Listener, u16)>;

    /// Accepts a connection, whose small writes are sent at once.
    ///
    /// # Errors
    /// As accept(2).
    fn accept(listener: &Self::Listener) -> io::Result<Self::Stream>;

    /// A client of HTTP with these settings.
    fn agent(config: Config) -> Agent;
}

/// The crates' own connections, on those of std.
#[derive(Clone, Copy, Debug)]
pub enum Own {}

impl Connections for Own {
    type Redis = redis::Connection;
    type Listener = TcpListener;
    type Stream = TcpStream;

    fn redis(port: u16) -> redis::Connection {
        let client = Client::open(format!("redis://127.0.0.1:{port}/")).expect("an address");
        client.get_connection().expect("a connection")
    }

    fn listen() -> io::Result<(TcpListener, u16)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        Ok((listener, port))
    }

    fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
        let stream = listener.accept()?.0;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    fn agent(config: Config) -> Agent {
        Agent::new_with_config(config)
    }
}
