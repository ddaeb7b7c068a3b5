//! `echo`: a microprocess for each connection. Prints its port, and ends with its standard input.

use std::io::{Read, Write};

use kumihimo::net::{TcpListener, TcpStream};
use kumihimo::{runtime, thread};
use kumihimo_bench_kit::{Request, raise_descriptors};

use crate::variant::Variant;

pub fn serve(request: &Request) {
    serve_each(request, echo)
}

/// Serves each connection in a microprocess of its own.
pub fn serve_each(request: &Request, body: fn(TcpStream)) {
    raise_descriptors();
    let variant = Variant::of(request);
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("bound").port();
    println!("listening {port}");
    variant.spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("accept");
            variant.spawn(move || body(stream));
        }
    });
    until_told();
}

/// Never returns: ends the process when its standard input ends.
pub fn until_told() -> ! {
    let copied = thread::blocking(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    copied.expect("stdin");
    if let Some(lost) = runtime::metrics().and_then(|now| now.trace_lost) {
        println!("lost {lost}");
    }
    // The connections' microprocesses wait for clients that have gone. They end with the process.
    std::process::exit(0)
}

/// Echoes all data until the other side closes the connection.
pub fn echo(mut stream: TcpStream) {
    stream.set_nodelay(true).expect("nodelay");
    let mut buffer = [0; 1024];
    while let Ok(n) = stream.read(&mut buffer) {
        if n == 0 || stream.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
}
