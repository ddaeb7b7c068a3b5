//! std's documentation examples for sockets compile with only the `use` changed, and pass.
//!
//! They are those of std 1.95 for TcpStream, TcpListener, UdpSocket, UnixStream, UnixListener,
//! UnixDatagram and ToSocketAddrs (stable ones), one function each; where std's page hides a line
//! that the example needs, it stands first. Copyright (c) The Rust Project Contributors, MIT OR
//! Apache-2.0, as this repository.
//!
//! std itself only compiles most of them: they name fixed ports and paths. Here they run, in a
//! microprocess, where this machine has their port or path free; what could not run is printed.
//! Those that serve for ever, or need a directory `/path`, are compiled only, as in std.

use std::net::{TcpListener, UdpSocket};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

#[allow(unused, clippy::all)]
#[rustfmt::skip]
mod addresses;
#[allow(unused, clippy::all)]
#[rustfmt::skip]
mod datagram;
#[allow(unused, clippy::all)]
#[rustfmt::skip]
mod tcp;
#[allow(unused, clippy::all)]
#[rustfmt::skip]
mod udp;
#[allow(unused, clippy::all)]
#[rustfmt::skip]
mod unix;

use addresses::*;
use datagram::*;
use tcp::*;
use udp::*;
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

/// Runs the examples with a server that answers at `127.0.0.1:port`.
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

/// Runs the examples that are bound to `port`, with a constant sender at `127.0.0.1:8080`.
fn with_sender(port: u16, all: &[Example]) {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let free = UdpSocket::bind(("127.0.0.1", port)).is_ok();
    let (true, Ok(sender)) = (free, UdpSocket::bind("127.0.0.1:8080")) else {
        return not_run(all.len(), &format!("UDP port {port} or 8080 is taken"));
    };
    let over = Arc::new(AtomicBool::new(false));
    let seen = over.clone();
    let sending = std::thread::spawn(move || {
        while !seen.load(Ordering::SeqCst) {
            // Nobody may be there yet.
            let _ = sender.send_to(b"hello", ("127.0.0.1", port));
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    });
    run(all);
    over.store(true, Ordering::SeqCst);
    sending.join().unwrap();
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
    with_free(
        &[80],
        &[tcp_listener_bind, tcp_listener_set_ttl, tcp_listener_ttl, tcp_listener_take_error],
    );
    with_free(&[80, 443], &[tcp_listener_bind_2]);
    // These wait for clients, the last three for ever.
    let _compiled: [Example; 4] = [
        tcp_listener_accept,
        tcp_listener_overview,
        tcp_listener_incoming,
        tcp_listener_set_nonblocking,
    ];
}

#[test]
fn udp_sockets() {
    with_sender(3400, &[udp_socket_bind, udp_socket_bind_2, udp_socket_bind_3, udp_socket_connect]);
    with_sender(7878, &[udp_socket_set_nonblocking]);
    with_sender(
        34254,
        &[
            udp_socket_overview,
            udp_socket_recv_from,
            udp_socket_peek_from,
            udp_socket_send_to,
            udp_socket_peer_addr_2,
            udp_socket_local_addr,
            udp_socket_try_clone,
            udp_socket_set_read_timeout,
            udp_socket_set_read_timeout_2,
            udp_socket_set_write_timeout,
            udp_socket_set_write_timeout_2,
            udp_socket_read_timeout,
            udp_socket_write_timeout,
            udp_socket_set_broadcast,
            udp_socket_broadcast,
            udp_socket_set_multicast_loop_v4,
            udp_socket_multicast_loop_v4,
            udp_socket_set_multicast_ttl_v4,
            udp_socket_multicast_ttl_v4,
            udp_socket_set_ttl,
            udp_socket_ttl,
            udp_socket_take_error,
            udp_socket_send,
            udp_socket_recv,
            udp_socket_peek,
        ],
    );
    // These set an option of IPv6 on an IPv4 socket, which Linux refuses, and connect to somebody's
    // network.
    let _compiled: [Example; 3] =
        [udp_socket_set_multicast_loop_v6, udp_socket_multicast_loop_v6, udp_socket_peer_addr];
}

#[test]
fn unix_datagrams() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    run(&[
        unix_datagram_unbound,
        unix_datagram_pair,
        unix_datagram_set_read_timeout,
        unix_datagram_set_read_timeout_2,
        unix_datagram_set_write_timeout,
        unix_datagram_set_write_timeout_2,
        unix_datagram_read_timeout,
        unix_datagram_write_timeout,
        unix_datagram_set_nonblocking,
        unix_datagram_take_error,
    ]);
    // Says that it could not bind, and returns.
    if !std::path::Path::new("/path").exists() {
        run(&[unix_datagram_bind]);
    }
    let _compiled: [Example; 13] = [
        unix_datagram_overview,
        unix_datagram_bind_addr,
        unix_datagram_connect,
        unix_datagram_connect_addr,
        unix_datagram_try_clone,
        unix_datagram_local_addr,
        unix_datagram_peer_addr,
        unix_datagram_recv_from,
        unix_datagram_recv,
        unix_datagram_send_to,
        unix_datagram_send_to_addr,
        unix_datagram_send,
        unix_datagram_shutdown,
    ];
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
