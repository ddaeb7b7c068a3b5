//! A TCP proxy with a microprocess for each direction of a connection. The end of one direction is
//! forwarded, and the other direction continues (half-close). A scope for each connection ends both
//! directions when one fails or the total time is over.
//!
//! `cargo run --release -p kumihimo-examples --bin proxy LISTEN UPSTREAM [SECONDS]`

use kumihimo::net::{Shutdown, TcpListener, TcpStream};
use kumihimo::thread;
use std::io;
use std::time::{Duration, Instant};

/// Timeout for connecting and for silence of either side.
const PATIENCE: Duration = Duration::from_secs(60);

/// Copies until `from` ends, then shuts down the sending direction of `to`.
fn one_way(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<u64> {
    from.set_read_timeout(Some(PATIENCE))?;
    to.set_write_timeout(Some(PATIENCE))?;
    let copied = io::copy(&mut from, &mut to)?;
    to.shutdown(Shutdown::Write)?;
    Ok(copied)
}

/// Returns the numbers of bytes from and to the client.
fn carry(client: &TcpStream, upstream: &str, deadline: Instant) -> io::Result<(u64, u64)> {
    // The deadline applies to every wait inside the scope.
    let server = &thread::scope_until(deadline, |_| TcpStream::connect(upstream))?;
    server.set_nodelay(true)?;
    client.set_nodelay(true)?;
    thread::scope_until(deadline, |s| {
        // The first direction that fails cancels the other one.
        let up = s.try_spawn(|| one_way(client, server));
        let down = s.try_spawn(|| one_way(server, client));
        let [up, down] =
            [up, down].map(|way| way.join().unwrap_or_else(|_| Err(io::Error::other("cancelled"))));
        match (up, down) {
            (Ok(up), Ok(down)) => Ok((up, down)),
            _ if Instant::now() >= deadline => Err(io::ErrorKind::TimedOut.into()),
            (Err(e), Ok(_)) | (_, Err(e)) => Err(e),
        }
    })
}

fn main() -> io::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [listen, upstream, rest @ ..] = &arguments[..] else { panic!("LISTEN UPSTREAM [SECONDS]") };
    let whole = Duration::from_secs_f64(
        rest.first().map_or(3600.0, |s| s.parse().expect("SECONDS is a number")),
    );
    let listener = TcpListener::bind(listen)?;
    println!("{}", listener.local_addr()?);
    loop {
        let ((client, peer), upstream) = (listener.accept()?, upstream.clone());
        thread::Builder::new().spawn(move || {
            match carry(&client, &upstream, Instant::now() + whole) {
                Ok((up, down)) => println!("{peer}: {up} bytes up, {down} down"),
                Err(e) => println!("{peer}: {}", e.kind()),
            }
        })?;
    }
}
