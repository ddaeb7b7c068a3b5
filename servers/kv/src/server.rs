//! The state that all connections share, and the settings.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use kumihimo::sync::atomic::AtomicU64;
use kumihimo::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

use crate::clients::Clients;
use crate::clients::channels::Channels;
use crate::data::databases::Databases;
use crate::data::key::{Time, now};
use crate::log::Sync;

/// How a server is to be.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where it listens for TCP; port 0 takes a free one.
    pub listen: Option<SocketAddr>,
    /// Where it listens for UNIX streams.
    pub unix: Option<PathBuf>,
    /// Bytes beyond which nothing is stored any more; 0 for no limit.
    pub max_memory: usize,
    /// Where changes are written down.
    pub append_log: Option<PathBuf>,
    /// When they are safe there.
    pub sync: Sync,
    /// How many may be connected at once.
    pub max_connections: usize,
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
        }
    }
}

/// What all connections share.
pub struct Server {
    /// How it is to be.
    pub settings: Settings,
    /// The data.
    pub databases: Databases,
    /// The connected clients.
    pub clients: Arc<Clients>,
    /// Publish and subscribe.
    pub channels: Channels,
    /// What it did so far.
    pub stats: Stats,
    /// When it began.
    pub since: Time,
    /// Address of the TCP listener.
    pub(crate) address: OnceLock<SocketAddr>,
    stopping: Mutex<bool>,
    stopped: Condvar,
}

/// What a server did so far.
#[derive(Default)]
pub struct Stats {
    /// Commands run.
    pub commands: AtomicU64,
}

impl Server {
    /// A server with empty databases.
    pub(crate) fn new(settings: Settings) -> Server {
        Server {
            databases: Databases::default(),
            clients: Arc::default(),
            channels: Channels::default(),
            stats: Stats::default(),
            since: now(),
            address: OnceLock::new(),
            stopping: Mutex::new(false),
            stopped: Condvar::new(),
            settings,
        }
    }

    /// Where it listens for TCP; 0 if it does not.
    pub fn port(&self) -> u16 {
        self.address.get().map_or(0, SocketAddr::port)
    }

    /// Whether no more may be stored.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.settings.max_memory != 0 && self.databases.shared.memory() > self.settings.max_memory
    }

    /// Requests the end of the server, which [`Running::wait`](crate::Running::wait) awaits.
    pub fn stop(&self) {
        *self.stopping.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stopped.notify_all();
    }

    /// Waits until it is asked to end, `time` at most. Whether it was.
    pub(crate) fn stops_within(&self, time: Duration) -> bool {
        let stopping = self.stopping.lock().unwrap_or_else(PoisonError::into_inner);
        *self
            .stopped
            .wait_timeout_while(stopping, time, |stopping| !*stopping)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }
}
