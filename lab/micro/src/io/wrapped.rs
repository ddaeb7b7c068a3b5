//! Connections of Kumihimo for the crates of `unwrapped`, whose waits are the runtime's then.

use std::io::{self, BufReader, Read, Write};
use std::net::Ipv4Addr;

use kumihimo::net::{TcpListener, TcpStream};
use kumihimo_bench_unwrapped::Connections;
use redis::{ConnectionLike, Parser, RedisResult, Value};
use ureq::config::Config;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Error};

/// Connections of Kumihimo.
pub enum Wrapped {}

impl Connections for Wrapped {
    type Redis = Redis;
    type Listener = TcpListener;
    type Stream = TcpStream;

    fn redis(port: u16) -> Redis {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a connection");
        stream.set_nodelay(true).expect("a socket of TCP");
        Redis { stream: BufReader::new(stream), parser: Parser::new() }
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
        Agent::with_parts(config, Connect, DefaultResolver::default())
    }
}

/// A connection to a Redis server.
pub struct Redis {
    stream: BufReader<TcpStream>,
    parser: Parser,
}

impl ConnectionLike for Redis {
    fn req_packed_command(&mut self, command: &[u8]) -> RedisResult<Value> {
        self.stream.get_mut().write_all(command)?;
        self.parser.parse_value(&mut self.stream)
    }

    fn req_packed_commands(
        &mut self,
        commands: &[u8],
        offset: usize,
        count: usize,
    ) -> RedisResult<Vec<Value>> {
        self.stream.get_mut().write_all(commands)?;
        let replies = (0..offset + count).map(|_| self.parser.parse_value(&mut self.stream));
        Ok(replies.collect::<RedisResult<Vec<_>>>()?.split_off(offset))
    }

    fn get_db(&self) -> i64 {
        0
    }

    fn check_connection(&mut self) -> bool {
        redis::cmd("PING").query::<String>(self).is_ok()
    }

    fn is_open(&self) -> bool {
        true
    }
}

/// Opens connections for `ureq`.
#[derive(Debug)]
struct Connect;

#[derive(Debug)]
struct Connection {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl Connector for Connect {
    type Out = Connection;

    fn connect(
        &self,
        details: &ConnectionDetails,
        _: Option<()>,
    ) -> Result<Option<Connection>, Error> {
        let stream = TcpStream::connect(&details.addrs[..])?;
        stream.set_nodelay(true)?;
        let (input, output) =
            (details.config.input_buffer_size(), details.config.output_buffer_size());
        Ok(Some(Connection { stream, buffers: LazyBuffers::new(input, output) }))
    }
}

impl Transport for Connection {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
        Ok(self.stream.write_all(&self.buffers.output()[..amount])?)
    }

    fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
        let n = self.stream.read(self.buffers.input_append_buf())?;
        self.buffers.input_appended(n);
        Ok(n > 0)
    }

    /// The peer closes each connection after its reply.
    fn is_open(&mut self) -> bool {
        false
    }
}
