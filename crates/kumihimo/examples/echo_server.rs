//! Sends back whatever arrives: one microprocess per connection, plain blocking code.
//!
//! `cargo run --release --example echo_server [ADDRESS]`, then `nc 127.0.0.1 7777`.

use std::io::{self, Read, Write};

use kumihimo::net::{TcpListener, TcpStream};
use kumihimo::thread;

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buf = [0; 4096];
    loop {
        let n = stream.read(&mut buf)?;
        if n == 0 {
            return Ok(());
        }
        stream.write_all(&buf[..n])?;
    }
}

/// Accepts until the listener fails for good.
pub fn serve(listener: &TcpListener) -> io::Result<()> {
    loop {
        match listener.accept() {
            Ok((stream, peer)) => drop(thread::Builder::new().spawn(move || {
                if let Err(e) = echo(stream) {
                    eprintln!("{peer}: {e}");
                }
            })?),
            // The client gave up while it waited.
            Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => {}
            Err(e) => return Err(e),
        }
    }
}

#[allow(dead_code, reason = "the tests include this file for `serve`")]
fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7777".to_owned());
    let listener = TcpListener::bind(addr)?;
    println!("echo on {}", listener.local_addr()?);
    thread::spawn(move || serve(&listener)).join().expect("the acceptor panicked")
}
