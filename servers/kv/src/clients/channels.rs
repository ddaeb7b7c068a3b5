//! Publish and subscribe. A subscriber has an outbox, which a microprocess of its own empties: a
//! publisher never waits for a reader.

use std::collections::{BTreeMap, HashMap};
use std::io::Write;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kumihimo::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use crate::clients::Client;
use crate::clients::stream::Stream;
use crate::data::glob;
use crate::protocol::reply::{Reply, Version};

/// What a subscriber may leave unread at most; and what for some time. Redis's default of
/// `client-output-buffer-limit pubsub`.
const HARD: usize = 32 << 20;
const SOFT: usize = 8 << 20;
const SOFT_TIME: Duration = Duration::from_secs(60);

/// What is on its way to a subscriber.
pub struct Outbox {
    client: Arc<Client>,
    state: Mutex<State>,
    more: Condvar,
}

struct State {
    bytes: BytesMut,
    /// Taken, but not yet accepted by the kernel.
    under_way: usize,
    soft_since: Option<Instant>,
    version: Version,
    over: bool,
}

impl Outbox {
    /// For `client`, which speaks `version`.
    pub fn new(client: Arc<Client>, version: Version) -> Outbox {
        let state =
            State { bytes: BytesMut::new(), under_way: 0, soft_since: None, version, over: false };
        Outbox { client, state: Mutex::new(state), more: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client speaks `version` from now on.
    pub fn set_version(&self, version: Version) {
        self.lock().version = version;
    }

    /// Puts behind what is there what `bytes` gives for the client's version. One that leaves too
    /// much unread loses its connection.
    pub fn put<'a>(&self, bytes: impl FnOnce(Version) -> &'a [u8]) {
        let mut state = self.lock();
        if state.over {
            return;
        }
        let bytes = bytes(state.version);
        state.bytes.extend_from_slice(bytes);
        let length = state.bytes.len() + state.under_way;
        if length <= SOFT {
            state.soft_since = None;
        } else {
            let since = *state.soft_since.get_or_insert_with(Instant::now);
            if length > HARD || since.elapsed() > SOFT_TIME {
                eprintln!(
                    "kv: client {} at {} leaves {length} bytes unread: cut off",
                    self.client.id, self.client.address
                );
                (state.over, state.bytes) = (true, BytesMut::new());
                self.client.kill();
            }
        }
        self.more.notify_one();
    }

    /// Nothing more will be put: [`empty`](Outbox::empty) ends when it has sent what is there.
    pub fn end(&self) {
        self.lock().over = true;
        self.more.notify_one();
    }

    /// Sends what is put here until it [`end`](Outbox::end)s.
    pub fn empty(&self, mut to: &Stream) {
        loop {
            let idle = |state: &mut State| state.bytes.is_empty() && !state.over;
            let mut state =
                self.more.wait_while(self.lock(), idle).unwrap_or_else(PoisonError::into_inner);
            if state.bytes.is_empty() {
                return;
            }
            let batch = state.bytes.split();
            state.under_way = batch.len();
            drop(state);
            if to.write_all(&batch).is_err() {
                let mut state = self.lock();
                (state.over, state.bytes) = (true, BytesMut::new());
                drop(state);
                // Its reader learns of it there.
                return self.client.kill();
            }
            self.lock().under_way = 0;
        }
    }
}

type Subscribers = BTreeMap<u64, Arc<Outbox>>;

/// What somebody has subscribed to.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// The channel of that name.
    Channel,
    /// All whose names are as the pattern says.
    Pattern,
}

/// All channels.
#[derive(Default)]
pub struct Channels {
    to: RwLock<Subscriptions>,
}

#[derive(Default)]
struct Subscriptions {
    channels: HashMap<Box<[u8]>, Subscribers, foldhash::quality::RandomState>,
    patterns: BTreeMap<Box<[u8]>, Subscribers>,
}

impl Channels {
    /// Subscribes `outbox`, and tells it so before anything can be published to it.
    pub fn subscribe(&self, to: To, name: &[u8], outbox: &Arc<Outbox>, told: &[u8]) {
        let mut all = self.to.write().unwrap_or_else(PoisonError::into_inner);
        let subscribers = match to {
            To::Channel => all.channels.entry(name.into()).or_default(),
            To::Pattern => all.patterns.entry(name.into()).or_default(),
        };
        subscribers.insert(outbox.client.id, Arc::clone(outbox));
        outbox.put(|_| told);
    }

    /// The opposite.
    pub fn unsubscribe(&self, to: To, name: &[u8], outbox: &Outbox, told: &[u8]) {
        let mut all = self.to.write().unwrap_or_else(PoisonError::into_inner);
        let id = outbox.client.id;
        let leave = |subscribers: Option<&mut Subscribers>| {
            subscribers.is_some_and(|subscribers| {
                subscribers.remove(&id).is_some() && subscribers.is_empty()
            })
        };
        match to {
            To::Channel => {
                if leave(all.channels.get_mut(name)) {
                    all.channels.remove(name);
                }
            }
            To::Pattern => {
                if leave(all.patterns.get_mut(name)) {
                    all.patterns.remove(name);
                }
            }
        }
        outbox.put(|_| told);
    }

    /// Sends `message` to all subscribers. How many that were.
    pub fn publish(&self, channel: &[u8], message: &[u8]) -> usize {
        let all = self.to.read().unwrap_or_else(PoisonError::into_inner);
        let mut count = 0;
        let mut send = |subscribers: &Subscribers, words: &[&[u8]]| {
            let forms = [Version::Two, Version::Three].map(|version| {
                let mut form = Reply { version, ..Reply::default() };
                form.push(words.len());
                words.iter().for_each(|word| form.bulk(word));
                form.bytes
            });
            for outbox in subscribers.values() {
                outbox.put(|version| &forms[usize::from(version == Version::Three)]);
                count += 1;
            }
        };
        if let Some(subscribers) = all.channels.get(channel) {
            send(subscribers, &[b"message", channel, message]);
        }
        for (pattern, subscribers) in &all.patterns {
            if glob::matches(pattern, channel) {
                send(subscribers, &[b"pmessage", pattern, channel, message]);
            }
        }
        count
    }

    /// How many channels and patterns somebody has subscribed to.
    pub fn counts(&self) -> (usize, usize) {
        let all = self.to.read().unwrap_or_else(PoisonError::into_inner);
        (all.channels.len(), all.patterns.len())
    }
}
