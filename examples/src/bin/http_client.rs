//! An HTTP client: the crate `ureq` on Kumihimo's connections. Fetches all URLs concurrently, each
//! in a microprocess, and each several times.
//!
//! `cargo run --release -p kumihimo-examples --bin http_client TIMES URL...`

use kumihimo::{net::TcpStream, thread};
use std::io::{self, Read, Write};
use std::time::Duration;
use ureq::unversioned::resolver::DefaultResolver;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Agent, Error};

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

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        self.stream.set_write_timeout(timeout.not_zero().map(|t| *t))?;
        self.stream.write_all(&self.buffers.output()[..amount]).map_err(|e| explain(e, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        self.stream.set_read_timeout(timeout.not_zero().map(|t| *t))?;
        let n =
            self.stream.read(self.buffers.input_append_buf()).map_err(|e| explain(e, timeout))?;
        self.buffers.input_appended(n);
        Ok(n > 0)
    }

    fn is_open(&mut self) -> bool {
        // An idle connection is usable if it has no unread data and is not closed.
        let seen = self.stream.set_nonblocking(true).and_then(|()| self.stream.peek(&mut [0]));
        seen.is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
            && self.stream.set_nonblocking(false).is_ok()
    }
}

fn explain(e: io::Error, timeout: NextTimeout) -> Error {
    if e.kind() == io::ErrorKind::WouldBlock { Error::Timeout(timeout.reason) } else { e.into() }
}

fn main() -> Result<(), String> {
    let mut arguments = std::env::args().skip(1);
    let times: usize = arguments.next().and_then(|n| n.parse().ok()).expect("TIMES URL...");
    let config =
        Agent::config_builder().timeout_recv_response(Some(Duration::from_secs(10))).build();
    let agent = &Agent::with_parts(config, Connect, DefaultResolver::default());
    let fetch = move |url: String| {
        // Sequential requests, which share a connection if the server keeps it open.
        for _ in 0..times {
            let text =
                agent.get(&url).call().and_then(|mut answer| answer.body_mut().read_to_string());
            println!("{url}: {}", text.map_err(|e| format!("{url}: {e}"))?.trim_end());
        }
        Ok(())
    };
    thread::scope(|s| {
        let all = arguments.map(|url| s.spawn(move || fetch(url)));
        all.collect::<Vec<_>>().into_iter().try_for_each(|one| one.join().expect("no panic"))
    })
}
