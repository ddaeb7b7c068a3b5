//! `kumi web`: what `kumi top` shows, live in a browser, and steered from there.
//!
//! A connection is a microprocess (`serve`). It reads requests (`http`), admits them (`access`),
//! and answers with the `page`, with a stream of what `live` has seen, or with what an address
//! space has replied (`requests`). `listen` binds the address. Everything that a browser sends is
//! hostile until it was checked, and so is everything that an address space sends.

mod access;
mod http;
mod listen;
mod live;
mod page;
mod requests;
mod serve;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use kumihimo::net::Server;
use kumihimo::signal::{self, Kind};
use kumihimo::sync::{Arc, Mutex};
use kumihimo::thread;
use kumihimo_machine::client::Machine;

use crate::ask::Whose;
use access::sessions::Sessions;
use access::{password, peer};
use http::response::BUSY;
use http::tls::Tls;
use http::transport::Socket;
use listen::{Listen, Listener};
use live::hub::Hub;
use serve::{Peer, Web};

/// Largest number of connections. A browser has six at most.
const MOST_CONNECTIONS: usize = 256;
/// Time for requests to end after a signal.
const FAREWELL: Duration = Duration::from_secs(2);

#[derive(clap::Args)]
#[command(after_help = "Examples:\n  \
    kumi web                                   prints the address to open in a browser\n  \
    kumi web --listen 127.0.0.1:8080\n  \
    kumi web --listen unix:/run/user/1000/web  for ssh -L 8080:/run/user/1000/web HOST\n  \
    kumi web --listen 0.0.0.0:8443 --password-file FILE --certificate FILE --key FILE")]
pub struct Args {
    /// Where to listen: a loopback address (port 0 takes a free one), unix:PATH, or, with a
    /// password and TLS, any address
    #[arg(long, value_name = "ADDR|unix:PATH", default_value = "127.0.0.1:0")]
    listen: Listen,
    /// File whose first line is the password: of at least 8 bytes, and readable by you alone
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// Certificate chain for TLS, in PEM
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, value_name = "FILE", requires = "certificate")]
    key: Option<PathBuf>,
    /// Time between two looks, in milliseconds
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    every: u64,
    #[command(flatten)]
    whose: Whose,
}

/// Serves until SIGTERM or SIGINT. Prints where it listens, and the address to open.
pub fn run(args: Args) -> Result<(), String> {
    let is_open = !args.listen.is_local();
    if is_open && (args.password_file.is_none() || args.certificate.is_none()) {
        return Err(
            "other machines can reach this address: give --password-file, --certificate and --key, or listen on 127.0.0.1"
                .to_owned(),
        );
    }
    let machine = args.whose.machine()?;
    let served = thread::spawn(move || serve(&args, machine)).join();
    served.map_err(|_| "the server panicked".to_owned())?
}

fn serve(args: &Args, machine: Machine) -> Result<(), String> {
    let tls = match (&args.certificate, &args.key) {
        (Some(certificate), Some(key)) => Some(Tls::load(certificate, key)?),
        _ => None,
    };
    let (sessions, token) = Sessions::new(|key| {
        args.password_file.as_ref().map(|path| password::read(path, key)).transpose()
    })?;
    // Signals must be caught before the address is printed.
    let signal = |kind| signal::stream(kind).map_err(|e| format!("a signal: {e}"));
    let signals = [signal(Kind::TERMINATE)?, signal(Kind::INTERRUPT)?];
    let listener = Listener::bind(&args.listen)?;
    let scheme = if tls.is_some() { "https" } else { "http" };
    let (place, address, port) = match &listener {
        Listener::Tcp(_, bound) => {
            let port = bound.port();
            let host = match bound.ip() {
                any if any.is_unspecified() => format!("HOST:{port}"),
                _ => bound.to_string(),
            };
            (bound.to_string(), format!("{scheme}://{host}"), format!("_{port}"))
        }
        Listener::Unix { .. } => {
            (args.listen.to_string(), format!("{scheme}://localhost:PORT"), String::new())
        }
    };
    // The prefix binds the cookie to TLS and to the exact host.
    let prefix = if tls.is_some() { "__Host-" } else { "" };
    let web = Arc::new(Web {
        server: Server::new().connections(MOST_CONNECTIONS).refusal(BUSY),
        sessions,
        hub: Hub::new(machine, Duration::from_millis(args.every)),
        tls,
        is_local: args.listen.is_local(),
        cookie: format!("{prefix}kumi_web{port}"),
        profiling: Mutex::new(()),
    });
    say(&format!("listening {place}\nopen {address}/?token={token}\n"))?;
    let waiting = signals.map(|mut signal| {
        let web = Arc::clone(&web);
        thread::spawn(move || {
            if signal.recv().is_ok() {
                web.hub.end();
                web.server.drain(FAREWELL);
            }
        })
    });
    let ended = accept(&web, &listener);
    for waiting in waiting {
        waiting.cancel();
        let _ = waiting.join();
    }
    web.hub.end();
    ended.map_err(|e| format!("{place}: {e}"))
}

/// Prints to standard output. The reader may be a pipe that waits for the address.
fn say(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    let said = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    said.map_err(|e| format!("standard output: {e}"))
}

/// Accepts and serves until the server is drained.
fn accept(web: &Web, listener: &Listener) -> std::io::Result<()> {
    let served = match listener {
        Listener::Tcp(listener, bound) => web.server.serve(listener, |stream, from| {
            // Under TLS with a password, other machines connect as well: then the peer's user says
            // nothing.
            let is_local = from.ip().to_canonical().is_loopback();
            let own = stream.local_addr().unwrap_or(*bound);
            if is_local && web.is_local && !peer::is_admitted(from, own) {
                return;
            }
            let peer = Peer { name: from.to_string(), address: Some(from.ip()) };
            web.serve(Socket::Tcp(stream), &peer);
        }),
        Listener::Unix { listener, .. } => web.server.serve(listener, |stream, _| {
            let Ok(credentials) = stream.peer_cred() else { return };
            if peer::may_connect(credentials.uid) {
                let name = format!("a process of user {}", credentials.uid);
                web.serve(Socket::Unix(stream), &Peer { name, address: None });
            }
        }),
    };
    served.map(drop)
}
