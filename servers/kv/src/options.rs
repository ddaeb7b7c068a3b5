//! Command-line options of `serve kv`.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use kumihimo::signal::{self, Kind};
use kumihimo::sync::Arc;
use kumihimo::thread;

use crate::log::Sync;
use crate::password::Password;
use crate::serve::{Repaired, repair};
use crate::server::{Server, Settings};

/// Parsed options.
#[derive(Args, Debug)]
pub struct Options {
    /// Listen for TCP here; port 0 takes a free one. [default: 127.0.0.1:6379, unless --unix is
    /// given]
    #[arg(long, value_name = "ADDR")]
    listen: Option<SocketAddr>,
    /// Listen for UNIX streams here
    #[arg(long, value_name = "PATH")]
    unix: Option<PathBuf>,
    /// Memory limit in bytes, beyond which writes are refused (k, m, g: units of 1024); 0: no limit
    #[arg(long, value_name = "N", default_value = "0", value_parser = bytes)]
    maxmemory: usize,
    /// File to append changes to; replayed at start
    #[arg(long, value_name = "FILE")]
    append_log: Option<PathBuf>,
    /// When a change in the append log is durable
    #[arg(long, value_enum, value_name = "WHEN", default_value = "everysec")]
    sync: Sync,
    /// Truncate a damaged append log at the damage, and exit. What follows the damage is saved in
    /// FILE.dropped-OFFSET
    #[arg(long, value_name = "FILE", conflicts_with_all = ["listen", "unix", "append_log"])]
    repair: Option<PathBuf>,
    /// Maximum number of connected clients
    #[arg(long, value_name = "N", default_value = "10000", value_parser = at_least_one)]
    max_connections: usize,
    /// Memory limit in bytes for the requests, replies, messages and subscriptions of all clients.
    /// Beyond it, a command fails, and the client that holds the most is disconnected
    #[arg(long, value_name = "N", default_value = "256m", value_parser = client_memory)]
    client_memory: usize,
    /// Password that clients give with AUTH. Other users see it in the list of processes; prefer
    /// --requirepass-file
    #[arg(long, value_name = "PASSWORD", value_parser = password)]
    requirepass: Option<Password>,
    /// File whose first line is the password
    #[arg(long, value_name = "FILE", conflicts_with = "requirepass")]
    requirepass_file: Option<PathBuf>,
    /// Whether TCP clients from other machines are refused while there is no password
    #[arg(long, value_enum, value_name = "yes|no", default_value = "yes")]
    protected_mode: Protected,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Protected {
    Yes,
    No,
}

fn client_memory(text: &str) -> Result<usize, String> {
    bytes(text).and_then(|n| if n >= 1 << 20 { Ok(n) } else { Err("at least 1m".to_owned()) })
}

fn password(text: &str) -> Result<Password, String> {
    Password::new(text).ok_or_else(|| "the password is empty".to_owned())
}

fn password_from(path: &Path) -> io::Result<Password> {
    let about = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let text = kumihimo::fs::read(path).map_err(about)?;
    let line = text.split(|b| *b == b'\n').next().unwrap_or_default();
    Password::new(line.strip_suffix(b"\r").unwrap_or(line))
        .ok_or_else(|| about(io::Error::new(io::ErrorKind::InvalidData, "the first line is empty")))
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|n| *n > 0).ok_or_else(|| "expected a whole number above 0".to_owned())
}

fn bytes(text: &str) -> Result<usize, String> {
    kumihimo_config::bytes(text)
        .ok_or_else(|| "expected a number of bytes, for example 1000000, 64m or 2g".to_owned())
}

/// Serves until SIGTERM, SIGINT or `SHUTDOWN`. Prints the listening addresses once the server
/// accepts connections. Blocks the calling kernel thread.
///
/// With `--repair`, repairs an append log and returns.
///
/// # Errors
/// As [`Server::start`], [`Running::wait`](crate::Running::wait) and [`repair`], as text.
pub fn run(options: Options) -> Result<(), String> {
    let served = thread::spawn(move || match &options.repair {
        Some(path) => repair_log(path),
        None => serve(options),
    });
    let served = served.join();
    served.map_err(|_| "the server panicked".to_owned())?.map_err(|e| e.to_string())
}

fn repair_log(path: &Path) -> io::Result<()> {
    let about = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    let Repaired { commands, good, removed, damage } = repair(path).map_err(about)?;
    let path = path.display();
    if let Some((damage, saved)) = &damage {
        println!("{path}: damaged at byte {good}: {damage}");
        println!("{path}: the bytes from there on are saved in {}", saved.display());
    }
    match removed {
        0 => println!("{path}: intact: {commands} commands in {good} bytes"),
        _ => println!("{path}: {removed} bytes removed: {commands} commands in {good} bytes"),
    }
    Ok(())
}

fn serve(options: Options) -> io::Result<()> {
    let default = || options.unix.is_none().then(|| ([127, 0, 0, 1], 6379).into());
    let settings = Settings {
        listen: options.listen.or_else(default),
        unix: options.unix.clone(),
        max_memory: options.maxmemory,
        append_log: options.append_log,
        sync: options.sync,
        max_connections: options.max_connections,
        client_memory: options.client_memory,
        password: match &options.requirepass_file {
            Some(path) => Some(password_from(path)?),
            None => options.requirepass,
        },
        protected: options.protected_mode == Protected::Yes,
    };
    if settings.protected
        && settings.password.is_none()
        && settings.listen.is_some_and(|at| !at.ip().to_canonical().is_loopback())
    {
        eprintln!(
            "kv: no password is set: clients from other machines are refused (see --requirepass-file)"
        );
    }
    // Signals must be caught before any client can connect.
    let signals = [signal::stream(Kind::TERMINATE)?, signal::stream(Kind::INTERRUPT)?];
    let path = settings.append_log.clone();
    let running = Server::start(settings)?;
    if let (Some(found), Some(path)) = (&running.replayed, path) {
        let path = path.display();
        if found.dropped > 0 {
            eprintln!(
                "kv: {path}: {} bytes of an incomplete command at the end are dropped",
                found.dropped
            );
        }
        eprintln!("kv: {path}: {} commands replayed", found.commands);
    }
    if let Some(address) = running.address() {
        println!("listening {address}");
    }
    if let Some(path) = &options.unix {
        println!("listening {}", path.display());
    }
    let waiting = signals.map(|mut signal| {
        let server = Arc::clone(running.server());
        thread::spawn(move || {
            if signal.recv().is_ok() {
                server.stop();
            }
        })
    });
    let ended = running.wait();
    for waiting in waiting {
        waiting.cancel();
        let _ = waiting.join();
    }
    ended
}
