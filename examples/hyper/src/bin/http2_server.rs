//! HTTP/2 by hyper, with blocking handlers: each request has a microprocess of its own.
//!
//! `cargo run --release -p kumihimo-examples-hyper --bin http2_server [ADDRESS]`, then for example
//! `curl --http2-prior-knowledge http://127.0.0.1:8080/sleep`.

use std::convert::Infallible;
use std::io;
use std::sync::LazyLock;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use kumihimo::future::block_on;
use kumihimo::futures::{Executor, Polled, Timer};
use kumihimo::net::{TcpListener, TcpStream};
use kumihimo::sync::Barrier;
use kumihimo::thread;

/// Streams of one connection at a time, where hyper's default is 200.
const STREAMS: u32 = 2000;

// ANCHOR: serve
/// Serves one connection, in the microprocess that calls this.
fn serve(stream: TcpStream) -> hyper::Result<()> {
    // hyper gives this future to the executor, so it is driven by a microprocess of its own.
    let service = service_fn(|request| async { Ok::<_, Infallible>(handle(request)) });
    let connection = http2::Builder::new(Executor::new())
        .timer(Timer)
        .max_concurrent_streams(STREAMS)
        .serve_connection(Polled::new(stream), service);
    block_on(connection)
}

/// Plain blocking code.
fn handle(request: Request<Incoming>) -> Response<Full<Bytes>> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/sleep") => {
            thread::sleep(Duration::from_millis(50));
            text("slept\n")
        }
        (&Method::POST, "/echo") => match block_on(request.into_body().collect()) {
            Ok(body) => Response::new(Full::new(body.to_bytes())),
            Err(_) => with_status(StatusCode::BAD_REQUEST),
        },
        (&Method::GET, "/meet") => meet(),
        _ => with_status(StatusCode::NOT_FOUND),
    }
}
// ANCHOR_END: serve

/// Waits until a thousand requests are here. One of the replies has the number of kernel threads of
/// this process while the other requests wait.
fn meet() -> Response<Full<Bytes>> {
    static MEETING: LazyLock<Barrier> = LazyLock::new(|| Barrier::new(1000));
    let is_leader = MEETING.wait().is_leader();
    let threads = if is_leader { idle_kernel_threads() } else { 0 };
    MEETING.wait();
    if is_leader { text(format!("{threads} kernel threads\n")) } else { text("met\n") }
}

/// Returns the number of kernel threads once there are few. In a server that has just started,
/// pages of the program are read from the disk: each microprocess that needs one blocks a kernel
/// thread. Kernel threads end when they have been idle for 100 ms.
fn idle_kernel_threads() -> usize {
    loop {
        let threads = std::fs::read_dir("/proc/self/task").map_or(0, |tasks| tasks.count());
        if threads <= 16 {
            return threads;
        }
        thread::sleep(Duration::from_millis(10));
    }
}

fn text(text: impl Into<Bytes>) -> Response<Full<Bytes>> {
    Response::new(Full::new(text.into()))
}

fn with_status(status: StatusCode) -> Response<Full<Bytes>> {
    let mut response = text("");
    *response.status_mut() = status;
    response
}

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".into());
    let listener = TcpListener::bind(&address)?;
    println!("http://{}", listener.local_addr()?);
    loop {
        let (stream, peer) = listener.accept()?;
        thread::spawn(move || {
            if let Err(error) = serve(stream) {
                eprintln!("{peer}: {error}");
            }
        });
    }
}
