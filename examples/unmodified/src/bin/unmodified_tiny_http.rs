//! The crate `tiny_http`: a server with a thread for each connection and for each request, where
//! requests wait for another one.
//!
//! `cargo run --release -p kumihimo-examples-unmodified --bin unmodified_tiny_http [ADDRESS]`, with
//! a limit of descriptors (`ulimit -n`) beyond the number of connections. Requests of `/wait` wait
//! for one of `/go`. `/waiting` replies with their number and that of the kernel threads.
//!
//! Clients that send many requests at once should ask for `Connection: close`: `tiny_http` 0.12 may
//! queue a new connection behind a thread that stays with another one for as long as that is kept.

kumihimo::interpose!();

use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;

use tiny_http::{Request, Response, Server};

/// Requests that wait, and how often they have been let go.
#[derive(Default)]
struct Hall {
    state: Mutex<(usize, u64)>,
    opened: Condvar,
}

#[kumihimo::main]
fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8080".to_owned());
    let listener = TcpListener::bind(address)?;
    // std lets 128 wait for accept(2). Of a thousand at once, Linux then resets some.
    rustix::net::listen(&listener, 4096)?;
    let server = Server::from_listener(listener, None)?;
    println!("http://{}", server.server_addr());
    let hall = Arc::new(Hall::default());
    for request in server.incoming_requests() {
        let hall = Arc::clone(&hall);
        thread::spawn(move || {
            let reply = hall.reply(&request);
            // Fails if the client has gone meanwhile.
            let _ = respond(request, reply);
        });
    }
    Ok(())
}

impl Hall {
    /// The reply to a request; `None` if there is no such page.
    fn reply(&self, request: &Request) -> Option<String> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match request.url() {
            "/wait" => {
                let round = state.1;
                state.0 += 1;
                let state = self.opened.wait_while(state, |state| state.1 == round);
                state.unwrap_or_else(PoisonError::into_inner).0 -= 1;
                Some("let go".to_owned())
            }
            "/waiting" => Some(format!("{} {}", state.0, kernel_threads())),
            "/go" => {
                state.1 += 1;
                self.opened.notify_all();
                Some(state.0.to_string())
            }
            _ => None,
        }
    }
}

fn respond(request: Request, reply: Option<String>) -> std::io::Result<()> {
    match reply {
        Some(reply) => request.respond(Response::from_string(reply)),
        None => request.respond(Response::empty(404)),
    }
}

fn kernel_threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("Linux").count()
}
