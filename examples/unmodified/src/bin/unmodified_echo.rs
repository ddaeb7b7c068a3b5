//! An echo server on std alone, with a thread for each connection: the program of the book's guide
//! to unmodified programs.
//!
//! `cargo run --release -p kumihimo-examples-unmodified --bin unmodified_echo 127.0.0.1:8080`

kumihimo::interpose!();

#[kumihimo::main]
fn main() -> std::io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8080".into());
    let listener = std::net::TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    for stream in listener.incoming() {
        let stream = stream?;
        std::thread::spawn(move || serve(stream));
    }
    Ok(())
}

/// Returns what the client sends until it closes.
fn serve(mut stream: std::net::TcpStream) -> std::io::Result<()> {
    use std::io::{Read, Write};

    let mut buffer = [0; 4096];
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            return Ok(());
        }
        stream.write_all(&buffer[..length])?;
    }
}
