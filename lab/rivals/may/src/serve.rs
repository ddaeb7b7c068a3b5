//! `echo` and `http`: a coroutine for each connection. Prints its port, and ends with its standard
//! input.

use std::io::{Read, Write};

use kumihimo_bench_kit::Request;
use may::go;
use may::net::{TcpListener, TcpStream};

pub fn echo(_: &Request) {
    serve_each(|mut stream| {
        let mut buffer = [0; 1024];
        while let Ok(n) = stream.read(&mut buffer) {
            if n == 0 || stream.write_all(&buffer[..n]).is_err() {
                break;
            }
        }
    })
}

pub fn http(_: &Request) {
    serve_each(|stream| {
        // A client that goes away ends its connection.
        let _ = kumihimo_bench_http::answer(stream);
    })
}

fn serve_each(body: fn(TcpStream)) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    println!("listening {}", listener.local_addr().expect("bound").port());
    go!(move || {
        for stream in listener.incoming() {
            let stream = stream.expect("accept");
            stream.set_nodelay(true).expect("nodelay");
            go!(move || body(stream));
        }
    });
    let input = std::thread::spawn(|| std::io::copy(&mut std::io::stdin(), &mut std::io::sink()));
    while !input.is_finished() {
        may::coroutine::sleep(std::time::Duration::from_millis(20));
    }
    std::process::exit(0);
}
