//! The state that all connections share, and the settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kumihimo::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use kumihimo::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use crate::budget::Budget;
use crate::clients::Clients;
use crate::clients::channels::Channels;
use crate::data::databases::Databases;
use crate::data::key::{Time, now};
use crate::log::Sync;
use crate::password::Password;

/// Settings of a server.
#[derive(Clone, Debug)]
pub struct Settings {
    /// TCP address to listen on; port 0 selects a free port.
    pub listen: Option<SocketAddr>,
    /// Path of the UNIX socket to listen on.
    pub unix: Option<PathBuf>,
    /// Memory limit in bytes, beyond which writes are refused; 0 for no limit.
    pub max_memory: usize,
    /// File to which changes are appended.
    pub append_log: Option<PathBuf>,
    /// When a change in the append log is durable.
    pub sync: Sync,
    /// Maximum number of connected clients.
    pub max_connections: usize,
    /// Limit on the bytes of the requests, replies, messages and subscriptions of all clients.
    pub client_memory: usize,
    /// Password that clients give with `AUTH` before other commands.
    pub password: Option<Password>,
    /// Without a password, refuse TCP clients that are not on this machine.
    pub protected: bool,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            listen: None,
            unix: None,
            max_memory: 0,
            append_log: None,
            sync: Sync::default(),
            max_connections: 10_000,
            client_memory: 256 << 20,
            password: None,
            protected: true,
        }
    }
}

/// Memory of a process without data and clients, and of an append log that is being written.
const OWN_MEMORY: usize = 160 << 20;

impl Settings {
    /// Resident bytes beyond which new data is refused: twice the memory for data, because the
    /// allocator cannot return a page with one living byte in it; the memory for clients; and what
    /// the server needs itself. `None` without a limit for data.
    pub fn most_resident(&self) -> Option<usize> {
        let data = (self.max_memory != 0).then_some(self.max_memory)?;
        Some(data.saturating_mul(2).saturating_add(self.client_memory).saturating_add(OWN_MEMORY))
    }
}

/// State that all connections share.
pub struct Server {
    /// The settings.
    pub settings: Settings,
    /// The data.
    pub databases: Databases,
    /// The connected clients.
    pub clients: Arc<Clients>,
    /// Memory of the connections.
    pub budget: Arc<Budget>,
    /// Publish and subscribe.
    pub channels: Channels,
    /// Statistics.
    pub stats: Stats,
    /// Time at which the server started.
    pub since: Time,
    /// Address of the TCP listener.
    pub(crate) address: OnceLock<SocketAddr>,
    stopping: Mutex<bool>,
    stopped: Condvar,
    /// True while the resident memory is beyond what the limits admit.
    crowded: AtomicBool,
}

/// Resident bytes of this process. `None` without /proc.
pub fn resident() -> Option<usize> {
    let status = kumihimo::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<usize>().ok()? << 10)
}

/// Statistics since the start.
#[derive(Default)]
pub struct Stats {
    /// Number of commands that have run.
    pub commands: AtomicU64,
}

impl Server {
    /// Creates a server with empty databases.
    pub(crate) fn new(settings: Settings) -> Server {
        Server {
            databases: Databases::default(),
            clients: Arc::default(),
            budget: Arc::new(Budget::new(settings.client_memory)),
            channels: Channels::default(),
            stats: Stats::default(),
            since: now(),
            address: OnceLock::new(),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
            crowded: AtomicBool::new(false),
            settings,
        }
    }

    /// The TCP port on which the server listens; 0 if it does not listen on TCP.
    pub fn port(&self) -> u16 {
        self.address.get().map_or(0, SocketAddr::port)
    }

    /// Returns whether the data would exceed the limit with `more` bytes, or the process exceeds
    /// what the limits admit: the allocator may have more memory than the data.
    #[inline]
    pub fn is_full(&self, more: usize) -> bool {
        self.settings.max_memory != 0
            && (self.databases.shared.memory().saturating_add(more) > self.settings.max_memory
                || self.crowded.load(Relaxed))
    }

    /// Compares the resident memory with [`Settings::most_resident`].
    pub(crate) fn check_resident(&self) {
        let Some(most) = self.settings.most_resident() else { return };
        let Some(resident) = resident() else { return };
        let crowded = resident > most;
        if self.crowded.swap(crowded, Relaxed) != crowded {
            let (verb, most) = (if crowded { "refuses" } else { "takes" }, most >> 20);
            eprintln!(
                "kv: {verb} new data: {} MiB are resident, and {most} MiB are the most for these \
                 limits",
                resident >> 20
            );
        }
    }

    /// Requests a shutdown, for which [`Running::wait`](crate::Running::wait) waits.
    pub fn stop(&self) {
        *self.stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopped.notify_all();
    }

    /// Waits for a shutdown request, at most for `time`. Returns whether there was one.
    pub(crate) fn stops_within(&self, time: Duration) -> bool {
        let stopping = self.stopping.lock().unwrap_or_else(PoisonError::into_inner);
        *self
            .stopped
            .wait_timeout_while(stopping, time, |stopping| !*stopping)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}
