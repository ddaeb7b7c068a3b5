//! Step 3: an echo server with one microprocess for each connection.

use std::io::{self, Read, Write};

use kumihimo::net::{TcpListener, TcpStream};
use kumihimo::thread;

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer)?; // blocks this microprocess
        if n == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..n])?;
    }
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7000".to_owned());
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept()?;
        thread::spawn(move || {
            if let Err(error) = echo(stream) {
                eprintln!("{peer}: {error}");
            }
        });
    }
}
