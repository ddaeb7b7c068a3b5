//! `priority-io`: an echo server with two ports. Connections to the second port have high priority.
//! Prints the ports, and ends with its standard input.

use kumihimo::net::TcpListener;
use kumihimo_bench_kit::{Request, raise_descriptors};

use super::echo::{echo, until_told};
use crate::variant::Variant;

/// Levels above the other connections.
const HIGH: i8 = 8;

pub fn serve(request: &Request) {
    raise_descriptors();
    let low = Variant::of(request);
    let high = match request.get("priorities") {
        Some("off") => low,
        _ => low.above(HIGH),
    };
    let listeners =
        [low, high].map(|variant| (variant, TcpListener::bind("127.0.0.1:0").expect("bind")));
    let ports = [0, 1].map(|i| listeners[i].1.local_addr().expect("bound").port());
    println!("listening {} {}", ports[0], ports[1]);
    for (variant, listener) in listeners {
        variant.spawn(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("accept");
                variant.spawn(move || echo(stream));
            }
        });
    }
    until_told();
}
