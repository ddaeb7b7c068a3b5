//! std's documentation examples for sockets compile with only the `use` changed, and pass.
//!
//! They are those of std 1.95 for TcpStream, TcpListener, UnixStream, UnixListener and ToSocketAddrs (stable ones), one function each; where
//! std's page hides a line that the example needs, it stands first. Copyright (c) The Rust Project Contributors, MIT OR Apache-2.0, as this
//! repository.
//!
//! std itself only compiles most of them: they name fixed ports and paths. Here they run, in a microprocess, where this machine
//! has their port or path free; what could not run is printed. Those that serve for ever, or need a directory `/path`, are compiled only, as in std.

use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[allow(unused, clippy::all)]
#[rustfmt::skip]
mod addresses;
#[allow(unused, clippy::all)]
#[rustfmt::skip]
mod tcp;
#[allow(unused, clippy::all)]
#[rustfmt::skip]
mod unix;

use addresses::*;
use tcp::*;
use unix::*;

/// Ports and paths belong to the whole process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

type Example = fn();

/// Says so past libtest's capture, which takes `print!` only. No skip: the test has others.
fn not_run(examples: usize, why: &str) {
    let line = format!("\n{why}: {examples} examples of std's documentation were compiled only\n");
    std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes()).unwrap();
}

fn run(all: &[Example]) {
    for &example in all {
        kumihimo::thread::spawn(example).join().expect("the example panicked");
    }
}

/// Runs the examples with somebody who answers at `127.0.0.1:port`.
fn with_server(port: u16, all: &[Example]) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let Ok(listener) = TcpListener::bind(("127.0.0.1", port)) else {
        return not_run(all.len(), &format!("port {port} is taken"));
    };
    let over = Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    let server = std::thread::spawn(move || {
        let mut held = Vec::new();
        for stream in listener.incoming() {
            if seen.load(Ordering::SeqCst) {
                break;
            }
            let mut stream = stream.unwrap();
            // The client may be gone already.
            let _ = std::io::Write::write_all(&mut stream, b"hello");
            let _ = stream.shutdown(std::net::Shutdown::Write);
            held.push(stream);
        }
    });
    run(all);
    over.store(true, Ordering::SeqCst);
    std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
    server.join().unwrap();
}

/// Runs the examples that listen at these ports.
fn with_free(ports: &[u16], all: &[Example]) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    for &port in ports {
        if TcpListener::bind(("127.0.0.1", port)).is_err() {
            return not_run(all.len(), &format!("port {port} is not ours to bind"));
        }
    }
    run(all);
}

#[test]
fn tcp_streams() {
    with_server(34254, &[tcp_stream_overview]);
    with_server(8000, &[tcp_stream_peek]);
    with_server(7878, &[tcp_stream_set_nonblocking]);
    with_server(
        8080,
        &[
            tcp_stream_connect,
            tcp_stream_connect_2,
            tcp_stream_peer_addr,
            tcp_stream_local_addr,
            tcp_stream_shutdown,
            tcp_stream_try_clone,
            tcp_stream_set_read_timeout,
            tcp_stream_set_read_timeout_2,
            tcp_stream_set_write_timeout,
            tcp_stream_set_write_timeout_2,
            tcp_stream_read_timeout,
            tcp_stream_write_timeout,
            tcp_stream_set_nodelay,
            tcp_stream_nodelay,
            tcp_stream_set_ttl,
            tcp_stream_ttl,
            tcp_stream_take_error,
        ],
    );
}

#[test]
fn tcp_listeners() {
    with_free(&[], &[tcp_listener_bind_3]);
    with_free(&[8080], &[tcp_listener_local_addr, tcp_listener_try_clone]);
    with_free(&[80], &[tcp_listener_bind, tcp_listener_set_ttl, tcp_listener_ttl, tcp_listener_take_error]);
    with_free(&[80, 443], &[tcp_listener_bind_2]);
    // These wait for clients, the last three for ever.
    let _compiled: [Example; 4] =
        [tcp_listener_accept, tcp_listener_overview, tcp_listener_incoming, tcp_listener_set_nonblocking];
}

#[test]
fn unix_streams() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    run(&[unix_stream_pair]);
    let all: &[Example] = &[
        unix_stream_connect,
        unix_stream_try_clone,
        unix_stream_local_addr,
        unix_stream_peer_addr,
        unix_stream_set_read_timeout,
        unix_stream_set_read_timeout_2,
        unix_stream_set_write_timeout,
        unix_stream_set_write_timeout_2,
        unix_stream_read_timeout,
        unix_stream_write_timeout,
        unix_stream_set_nonblocking,
        unix_stream_take_error,
        unix_stream_shutdown,
    ];
    match UnixListener::bind("/tmp/sock") {
        // Nobody accepts: the backlog holds them all.
        Ok(_listener) => {
            run(all);
            std::fs::remove_file("/tmp/sock").unwrap();
        }
        Err(e) => not_run(all.len(), &format!("/tmp/sock: {e}")),
    }
    let _compiled: [Example; 2] = [unix_stream_overview, unix_stream_connect_addr];
}

#[test]
fn unix_listeners() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    // Says that it could not bind, and returns.
    if !std::path::Path::new("/path").exists() {
        run(&[unix_listener_bind]);
    }
    if std::path::Path::new("/tmp/sock").exists() {
        not_run(1, "/tmp/sock exists");
    } else {
        run(&[unix_listener_take_error]);
        std::fs::remove_file("/tmp/sock").unwrap();
    }
    let _compiled: [Example; 7] = [
        unix_listener_overview,
        unix_listener_bind_addr,
        unix_listener_accept,
        unix_listener_try_clone,
        unix_listener_local_addr,
        unix_listener_set_nonblocking,
        unix_listener_incoming,
    ];
}

#[test]
fn addresses() {
    run(&[addrs_overview, addrs_overview_3, addrs_overview_4, addrs_overview_5]);
    // Depends on what `localhost` and `foo` mean here; the trait is std's own.
    let _compiled: [Example; 1] = [addrs_overview_2];
}
