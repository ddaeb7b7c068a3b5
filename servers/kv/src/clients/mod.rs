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

use crate::data::key::Time;
use crate::protocol::reply::Version;
use stream::Stream;

/// A client, as others see it.
pub struct Client {
    /// Never used again.
    pub id: u64,
    /// Where it comes from, and where to.
    pub address: String,
    /// Our side.
    pub local: String,
    /// When it came.
    pub since: Time,
    /// When it asked last.
    pub active: AtomicU64,
    /// Its database.
    pub database: AtomicU8,
    /// Whether it speaks RESP3.
    pub resp3: AtomicBool,
    /// Channels and patterns to which it has subscribed.
    pub channels: AtomicUsize,
    /// Of those, patterns.
    pub patterns: AtomicUsize,
    /// Whether it waits for an item.
    pub blocked: AtomicBool,
    /// What it says of itself.
    pub told: Mutex<Told>,
    killed: AtomicBool,
    stream: Arc<Stream>,
}

/// What a client says of itself.
#[derive(Default)]
pub struct Told {
    /// `CLIENT SETNAME`.
    pub name: String,
    /// `CLIENT SETINFO LIB-NAME`.
    pub library: String,
    /// `CLIENT SETINFO LIB-VER`.
    pub version: String,
    /// The command it gave last.
    pub command: &'static str,
}

impl Client {
    /// What it says of itself.
    pub fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its socket.
    pub fn stream(&self) -> &Arc<Stream> {
        &self.stream
    }

    /// Ends its connection.
    pub fn kill(&self) {
        self.killed.store(true, Relaxed);
        self.stream.shutdown(Shutdown::Both);
    }

    /// How `CLIENT LIST` calls its kind.
    pub fn kind(&self) -> &'static str {
        if self.channels.load(Relaxed) > 0 { "pubsub" } else { "normal" }
    }

    /// Its line in `CLIENT LIST`, without the end of the line.
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

/// The presence of a connected client; dropped when the connection has ended.
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

    /// Admits a client, unless `most` are connected already or the server is about to end.
    pub fn enter(
        self: &Arc<Clients>,
        most: usize,
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
            killed: AtomicBool::new(false),
            stream: Arc::clone(stream),
        });
        state.clients.insert(client.id, Arc::clone(&client));
        Some(Presence { clients: Arc::clone(self), client })
    }

    /// All of them, by age, but those whose end has been asked for.
    pub fn all(&self) -> Vec<Arc<Client>> {
        self.lock()
            .clients
            .values()
            .filter(|client| !client.killed.load(Relaxed))
            .cloned()
            .collect()
    }

    /// How many came, and how many of them were sent away.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.lock();
        (state.last, state.refused)
    }

    /// From now on no client is let in, and those that are here end when what has arrived from them
    /// is answered.
    pub fn dismiss(&self) {
        let mut state = self.lock();
        state.ending = true;
        for client in state.clients.values() {
            client.stream.shutdown(Shutdown::Read);
        }
    }

    /// Waits until no client is here any more; those that still are at `deadline` are cut off.
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
