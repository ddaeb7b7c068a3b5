//! `echo` and `http`: a thread for each connection. Prints its port, and ends with its standard
//! input.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::thread;

pub fn serve() {
    serve_each(echo)
}

pub fn serve_http() {
    serve_each(|stream| {
        stream.set_nodelay(true).expect("nodelay");
        // A client that goes away ends its connection.
        let _ = kumihimo_bench_http::answer(stream);
    })
}

fn serve_each(body: fn(TcpStream)) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let port = listener.local_addr().expect("bound").port();
    println!("listening {port}");
    thread::spawn(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("accept");
            thread::Builder::new().stack_size(64 << 10).spawn(move || body(stream)).expect("thread limit");
        }
    });
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).expect("stdin");
}

fn echo(mut stream: TcpStream) {
    stream.set_nodelay(true).expect("nodelay");
    let mut buffer = [0; 1024];
    while let Ok(n) = stream.read(&mut buffer) {
        if n == 0 || stream.write_all(&buffer[..n]).is_err() {
            break;
        }
    }
}
