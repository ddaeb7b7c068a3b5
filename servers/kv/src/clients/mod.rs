//! The connected clients: their sockets, their properties as other clients see them, and their
//! subscriptions.
//!
//! A connection enters through [`Clients::enter`] and leaves when its [`Presence`] drops.
//! `stream.rs` is the socket; `channels.rs` delivers published messages into a subscriber's outbox,
//! which a microprocess of its own writes to the socket, so that a publisher never waits for a
//! reader.
//!
//! Uses the protocol and the data room's times and patterns; the server and sessions stand above.

pub mod channels;
pub mod stream;

use std::collections::BTreeMap;
use std::time::Instant;

use kumihimo::net::Shutdown;
use kumihimo::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use kumihimo::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use crate::budget::{Account, Budget};
use crate::data::key::Time;
use crate::protocol::reply::Version;
use stream::Stream;

/// A connected client, as the commands of other clients see it.
pub struct Client {
    /// Unique number. IDs are never reused.
    pub id: u64,
    /// Remote address.
    pub address: String,
    /// Local address.
    pub local: String,
    /// Time at which the client connected.
    pub since: Time,
    /// Time of the client's last command.
    pub active: AtomicU64,
    /// Number of the selected database.
    pub database: AtomicU8,
    /// True after the client has switched to RESP3.
    pub resp3: AtomicBool,
    /// Number of subscriptions, to channels and to patterns.
    pub channels: AtomicUsize,
    /// Number of subscriptions to patterns.
    pub patterns: AtomicUsize,
    /// True while the client waits in a blocking command.
    pub blocked: AtomicBool,
    /// Properties that the client reports about itself, and its last command.
    pub told: Mutex<Told>,
    /// Counted memory of the connection.
    pub account: Arc<Account>,
    killed: AtomicBool,
    stream: Arc<Stream>,
}

/// Properties that a client reports about itself, and its last command.
#[derive(Default)]
pub struct Told {
    /// `CLIENT SETNAME`.
    pub name: String,
    /// `CLIENT SETINFO LIB-NAME`.
    pub library: String,
    /// `CLIENT SETINFO LIB-VER`.
    pub version: String,
    /// Name of the client's last command.
    pub command: &'static str,
}

impl Client {
    /// Locks the reported properties.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client's socket.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Shuts the connection down in both directions.
    pub fn kill(&self) {
        self.killed.store(true, Relaxed);
        self.stream.shutdown(Shutdown::Both);
    }

    /// Returns whether the client is being disconnected by the server.
    pub fn is_killed(&self) -> bool {
        self.killed.load(Relaxed)
    }

    /// The client's type, as `CLIENT LIST TYPE` names it.
    pub fn kind(&self) -> &'static str {
        if self.channels.load(Relaxed) > 0 { "pubsub" } else { "normal" }
    }

    /// The client's line in `CLIENT LIST`, without the line feed.
    pub fn line(&self, now: Time) -> String {
        let (channels, patterns) = (self.channels.load(Relaxed), self.patterns.load(Relaxed));
        let mut flags = String::new();
        for (flag, on) in [
            ('P', channels > 0),
            ('b', self.blocked.load(Relaxed)),
            ('U', self.local.starts_with('/')),
        ] {
            if on {
                flags.push(flag);
            }
        }
        if flags.is_empty() {
            flags.push('N');
        }
        let told = self.told();
        let version = if self.resp3.load(Relaxed) { Version::Three } else { Version::Two };
        format!(
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={flags} db={} sub={} psub={patterns} ssub=0 multi=-1 \
             cmd={} user=default lib-name={} lib-ver={} resp={}",
            self.id,
            self.address,
            self.local,
            told.name,
            now.saturating_sub(self.since) / 1000,
            now.saturating_sub(self.active.load(Relaxed)) / 1000,
            self.database.load(Relaxed),
            channels - patterns.min(channels),
            told.command,
            told.library,
            told.version,
            if version == Version::Two { 2 } else { 3 },
        )
    }
}

/// All connected clients.
#[derive(Default)]
pub struct Clients {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Default)]
struct State {
    last: u64,
    clients: BTreeMap<u64, Arc<Client>>,
    refused: u64,
    ending: bool,
}

/// Registration of a connected client. Dropped when the connection has ended.
pub struct Presence {
    clients: Arc<Clients>,
    /// The client.
    pub client: Arc<Client>,
}

impl Drop for Presence {
    fn drop(&mut self) {
        let clients = &self.clients;
        clients.lock().clients.remove(&self.client.id);
        clients.left.notify_all();
    }
}

impl Clients {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Admits a client, unless `most` clients are connected or the server is shutting down.
    pub fn enter(
        self: &Arc<Clients>,
        most: usize,
        budget: &Arc<Budget>,
        stream: &Arc<Stream>,
        (address, local): (String, String),
        now: Time,
    ) -> Option<Presence> {
        let mut state = self.lock();
        if state.clients.len() >= most || state.ending {
            state.refused += 1;
            return None;
        }
        state.last += 1;
        let client = Arc::new(Client {
            id: state.last,
            address,
            local,
            since: now,
            active: AtomicU64::new(now),
            database: AtomicU8::new(0),
            resp3: AtomicBool::new(false),
            channels: AtomicUsize::new(0),
            patterns: AtomicUsize::new(0),
            blocked: AtomicBool::new(false),
            told: Mutex::default(),
            account: Arc::new(Account::new(budget)),
            killed: AtomicBool::new(false),
            stream: Arc::clone(stream),
        });
        state.clients.insert(client.id, Arc::clone(&client));
        Some(Presence { clients: Arc::clone(self), client })
    }

    /// All clients in order of connection, except those that are being disconnected.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.lock()
            .clients
            .values()
            .filter(|client| !client.killed.load(Relaxed))
            .cloned()
            .collect()
    }

    /// Makes room after something of `me` did not fit: disconnects the client that holds the most
    /// memory, unless that is `me`, or it holds less than a sixteenth of the limit: others that are
    /// being disconnected then hold the memory for a moment more.
    pub fn make_room(&self, me: &Client) {
        let state = self.lock();
        let living = state.clients.values().filter(|client| !client.is_killed());
        let Some(most) = living.max_by_key(|client| client.account.held()) else { return };
        let held = most.account.held();
        if most.id != me.id && held > me.account.held() && held > most.account.limit() / 16 {
            eprintln!(
                "kv: client {} at {} disconnected: it holds {} bytes of the exhausted memory for \
                 clients",
                most.id, most.address, held
            );
            most.kill();
        }
    }

    /// Numbers of accepted and of refused connections.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.lock();
        (state.last, state.refused)
    }

    /// Refuses new clients from now on. A connected client is disconnected after the replies to all
    /// requests that have arrived from it.
    pub fn dismiss(&self) {
        let mut state = self.lock();
        state.ending = true;
        for client in state.clients.values() {
            client.stream.shutdown(Shutdown::Read);
        }
    }

    /// Waits until no client is connected. Clients that are still connected at `deadline` are
    /// disconnected.
    pub fn wait(&self, deadline: Instant) {
        let here = |state: &mut State| !state.clients.is_empty();
        let waited = self.left.wait_while_until(self.lock(), deadline, here);
        let (state, timed_out) = waited.unwrap_or_else(PoisonError::into_inner);
        if timed_out.timed_out() {
            for client in state.clients.values() {
                client.kill();
            }
            drop(self.left.wait_while(state, here).unwrap_or_else(PoisonError::into_inner));
        }
    }
}
