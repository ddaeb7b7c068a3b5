//! Redis.

use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::Duration;

use super::Running;

/// A Redis server without persistence, on a free port of 127.0.0.1.
pub struct Redis {
    _running: Running,
    address: String,
}

impl Redis {
    /// Starts a server. `None` if Redis is not installed.
    ///
    /// # Panics
    /// If the server does not start.
    #[must_use]
    pub fn start() -> Option<Redis> {
        if !super::is_installed("redis-server") {
            return None;
        }
        // Redis cannot choose a free port itself. Another process may take the one that was free.
        loop {
            let free = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = free.local_addr().expect("it is bound");
            drop(free);
            if let Some(running) = start(address.port()) {
                return Some(Redis { _running: running, address: address.to_string() });
            }
        }
    }

    /// Its address, as `127.0.0.1:6379`.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }
}

/// A server that accepts connections at a port; `None` if the port is taken.
fn start(port: u16) -> Option<Running> {
    let folder = super::folder("redis");
    let (stdout, stderr) = super::log(&folder);
    let child = Command::new("setpriv")
        .args(["--pdeathsig", "KILL", "redis-server", "--bind", "127.0.0.1"])
        .args(["--port", &port.to_string(), "--save", "", "--appendonly", "no"])
        .current_dir(&folder)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(stderr)
        .spawn()
        .expect("setpriv is installed");
    let mut running = Running { child, folder };
    loop {
        let log = std::fs::read_to_string(running.folder.join("log")).expect("text");
        if log.contains("Ready to accept connections") {
            return Some(running);
        }
        if log.contains("Address already in use") {
            return None;
        }
        let _ = running.log();
        std::thread::sleep(Duration::from_millis(5));
    }
}
