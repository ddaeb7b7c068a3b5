//! Chapter 5: an echo server with a thread for each of a thousand TCP connections, and as many
//! clients.

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kumihimo::runtime;
use kumihimo::sync::Barrier;
use kumihimo_bench_kit::{CpuClock, raise_descriptors};
use rustix::process::{Resource, getrlimit};

use crate::tour::page::text;
use crate::tour::page::watch::Watch;
use crate::tour::threads::kinds::{Kernel, Kind, Micro};
use crate::tour::{Args, Figures, check, in_runtime};

const CONNECTIONS: usize = 1_000;
const ROUNDS: usize = 100;
const BYTES: usize = 64;
/// Number of descriptors for purposes other than connections.
const OTHERS: u64 = 100;

pub fn run(_: &Args, figures: &mut Figures) -> Result<(), String> {
    raise_descriptors();
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let connections = possible(limit);
    text::say(&format!(
        "A server on 127.0.0.1 has one thread for each connection, with a simple loop of read and write_all. {} \
         clients, each with its own thread, connect and wait until all are connected. Then each client sends \
         {ROUNDS} requests of {BYTES} bytes and compares every byte of the reply. The same program with threads and \
         sockets of std, and with those of Kumihimo:",
        text::number(connections as u64),
    ));
    if connections < CONNECTIONS {
        text::say(&format!(
            "(Not {}: the limit on open descriptors is {limit} and cannot be raised; see `ulimit -Hn`.)",
            text::number(CONNECTIONS as u64),
        ));
    }
    println!();
    let kernel = {
        let _watch = Watch::open("kernel threads");
        all::<Kernel>(connections)?
    };
    let (micro, threads) = {
        let _watch = Watch::open("microprocesses");
        in_runtime(|| {
            Ok((all::<Micro>(connections)?, runtime::metrics().map_or(0, |m| m.kernel_threads)))
        })?
    };
    let rate = |took: &Took| {
        text::number(((connections * ROUNDS) as f64 / took.time.as_secs_f64()) as u64)
    };
    let row = |name: &str, took: &Took, threads: usize| {
        let each = text::time(took.cpu / (connections * ROUNDS) as u32);
        vec![name.to_owned(), text::number(threads as u64), text::time(took.time), rate(took), each]
    };
    text::table(
        &["", "kernel threads", "time", "requests/s", "CPU time a request, both ends"],
        &[
            row("kernel threads", &kernel, 2 * connections + 1),
            row("microprocesses", &micro, threads),
        ],
    );
    println!();
    text::say(&format!(
        "{} bytes were sent and echoed on each side, all of them correct.",
        text::number((connections * ROUNDS * BYTES) as u64),
    ));
    let what = format!("echo, {} connections, requests/s", text::number(connections as u64));
    figures.add(what, rate(&kernel), rate(&micro));
    Ok(())
}

/// Number of connections that the limit allows. Both ends are in this process.
fn possible(limit: u64) -> usize {
    let pairs = limit.saturating_sub(OTHERS) / 2;
    usize::try_from(pairs).map_or(CONNECTIONS, |n| n.clamp(1, CONNECTIONS))
}

/// The sockets of a kind of thread. Their methods have the same names.
trait Net: Kind {
    type Stream: Read + Write + Send + 'static;

    /// Listens, and calls `serve` for each connection in a separate thread, until there were
    /// `count`. Returns the port.
    fn listen(
        count: usize,
        serve: fn(Self::Stream) -> io::Result<u64>,
    ) -> io::Result<(u16, Self::Handle<Served>)>;
    fn connect(port: u16) -> io::Result<Self::Stream>;
}

/// Number of bytes echoed on all connections.
type Served = io::Result<u64>;

macro_rules! net {
    ($kind:ty, $net:ident :: net) => {
        impl Net for $kind {
            type Stream = $net::net::TcpStream;

            fn listen(
                count: usize,
                serve: fn(Self::Stream) -> Served,
            ) -> io::Result<(u16, Self::Handle<Served>)> {
                let listener = $net::net::TcpListener::bind("127.0.0.1:0")?;
                let port = listener.local_addr()?.port();
                let server = Self::spawn(move || {
                    let mut connections = Vec::with_capacity(count);
                    for stream in listener.incoming().take(count) {
                        let stream = stream?;
                        stream.set_nodelay(true)?;
                        connections.push(Self::spawn(move || serve(stream)));
                    }
                    connections.into_iter().map(Self::join).sum()
                });
                Ok((port, server))
            }

            fn connect(port: u16) -> io::Result<Self::Stream> {
                let stream = $net::net::TcpStream::connect(("127.0.0.1", port))?;
                stream.set_nodelay(true)?;
                Ok(stream)
            }
        }
    };
}
net!(Kernel, std::net);
net!(Micro, kumihimo::net);

/// Cost of all requests after all clients were connected.
struct Took {
    time: Duration,
    /// CPU time of the process: other programs do not count.
    cpu: Duration,
}

fn all<N: Net>(connections: usize) -> Result<Took, String> {
    let (port, server) = N::listen(connections, echo).map_err(|e| format!("no listener: {e}"))?;
    // Kumihimo's barrier works for both kinds of thread.
    let ready = Arc::new(Barrier::new(connections + 1));
    let clients: Vec<_> = (0..connections)
        .map(|number| {
            let ready = ready.clone();
            N::spawn(move || {
                let stream = N::connect(port);
                ready.wait();
                client(&mut stream?, number)
            })
        })
        .collect();
    ready.wait();
    let (start, cpu) = (Instant::now(), CpuClock::now());
    let mut failed = None;
    for (number, one) in clients.into_iter().enumerate() {
        if let Err(why) = N::join(one) {
            failed.get_or_insert(format!("client {number}: {why}"));
        }
    }
    let took = Took { time: start.elapsed(), cpu: cpu.elapsed() };
    // After a failed connection, the server waits for one more client.
    if let Some(why) = failed {
        return Err(why);
    }
    let served = N::join(server).map_err(|e| format!("server: {e}"))?;
    let sent = (connections * ROUNDS * BYTES) as u64;
    check(served == sent, || format!("{served} bytes echoed, not {sent}"))?;
    Ok(took)
}

fn echo(mut stream: impl Read + Write) -> Served {
    let mut buffer = [0; 1024];
    let mut bytes = 0;
    loop {
        let n = stream.read(&mut buffer)?;
        if n == 0 {
            return Ok(bytes);
        }
        stream.write_all(&buffer[..n])?;
        bytes += n as u64;
    }
}

fn client(stream: &mut (impl Read + Write), number: usize) -> io::Result<()> {
    for round in 0..ROUNDS {
        let request = request(number, round);
        stream.write_all(&request)?;
        let mut reply = [0; BYTES];
        stream.read_exact(&mut reply)?;
        if reply != request {
            return Err(io::Error::other(format!(
                "another reply than the request, in round {round}"
            )));
        }
    }
    Ok(())
}

/// Bytes that are unique to the client and the round.
fn request(number: usize, round: usize) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (i, word) in bytes.chunks_exact_mut(8).enumerate() {
        let id = ((number * ROUNDS + round) * 8 + i) as u64 + 1;
        word.copy_from_slice(&id.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes());
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_descriptors_mean_fewer_connections() {
        assert_eq!([u64::MAX, 20_000, 1_024, 0].map(possible), [1_000, 1_000, 462, 1]);
    }

    #[test]
    fn requests_differ() {
        assert!(request(0, 1) != request(1, 0) && request(3, 99) != request(4, 0));
    }

    #[test]
    fn both_kinds_echo_every_byte() {
        all::<Kernel>(10).unwrap();
        in_runtime(|| all::<Micro>(10)).unwrap();
    }
}
