//! Step 4: the same server with a limit on connections and an orderly end on Ctrl-C.

use std::io::{self, Read, Write};
use std::time::Duration;

use kumihimo::net::{Server, TcpListener, TcpStream};
use kumihimo::{signal, thread};

fn echo(server: &Server, mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        // Draining ends a connection that waits here, and lets the others finish.
        let n = server.idle(|| stream.read(&mut buffer))?;
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
    let server = Server::new().connections(10_000).refusal("busy, try again later\n");
    let tally = thread::scope(|s| {
        let stopper = s.spawn(|| {
            signal::ctrl_c().expect("a handler for SIGINT");
            println!("draining {} connections", server.open());
            server.drain(Duration::from_secs(5));
        });
        let served = server.serve(&listener, |stream, peer| {
            if let Err(error) = echo(&server, stream) {
                eprintln!("{peer}: {error}");
            }
        });
        stopper.cancel();
        served
    })?;
    println!("served {} connections, refused {}", tally.served, tally.refused);
    Ok(())
}
