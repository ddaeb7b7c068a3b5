//! Publish and subscribe. Each subscriber has an outbox. A dedicated microprocess writes the outbox
//! to the subscriber's socket, so a publisher never waits for a subscriber.

use std::collections::{BTreeMap, HashMap};
use std::hash::BuildHasher;
use std::ops::Bound;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use kumihimo::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};

use crate::budget::{SMALL_REPLY, Share};
use crate::clients::Client;
use crate::clients::stream::Stream;
use crate::data::glob;
use crate::protocol::reply::{Reply, Version};

/// Hard limit on a subscriber's unsent bytes. This limit and the soft limit below are Redis's
/// defaults for `client-output-buffer-limit pubsub`.
const HARD: usize = 32 << 20;
const SOFT: usize = 8 << 20;
const SOFT_TIME: Duration = Duration::from_secs(60);

/// Messages queued for one subscriber, in the protocol version of its client.
pub struct Outbox {
    client: Arc<Client>,
    state: Mutex<State>,
    more: Condvar,
}

struct State {
    bytes: BytesMut,
    share: Share,
    /// Bytes that the sender has taken from the queue and the kernel has not yet accepted.
    under_way: usize,
    soft_since: Option<Instant>,
    version: Version,
    over: bool,
}

impl Outbox {
    /// Creates an empty outbox for `client`, which uses protocol `version`.
    pub fn new(client: Arc<Client>, version: Version) -> Outbox {
        let share = Share::new(&client.account);
        let bytes = BytesMut::new();
        let state = State { bytes, share, under_way: 0, soft_since: None, version, over: false };
        Outbox { client, state: Mutex::new(state), more: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the protocol version of messages queued from now on.
    pub fn set_version(&self, version: Version) {
        self.lock().version = version;
    }

    /// Appends the bytes that `bytes` returns for the client's protocol version. A client that
    /// exceeds the limits on unsent bytes is disconnected.
    pub fn put<'a>(&self, bytes: impl FnOnce(Version) -> &'a [u8]) {
        let mut state = self.lock();
        if state.over {
            return;
        }
        let bytes = bytes(state.version);
        let length = state.bytes.len() + bytes.len() + state.under_way;
        let fits = state.share.resize(length.saturating_sub(SMALL_REPLY));
        if fits {
            state.bytes.extend_from_slice(bytes);
        }
        if length <= SOFT && fits {
            state.soft_since = None;
        } else {
            let since = *state.soft_since.get_or_insert_with(Instant::now);
            if !fits || length > HARD || since.elapsed() > SOFT_TIME {
                eprintln!(
                    "kv: client {} at {} disconnected: {length} bytes unread",
                    self.client.id, self.client.address
                );
                (state.over, state.bytes) = (true, BytesMut::new());
                self.client.kill();
            }
        }
        self.more.notify_one();
    }

    /// Closes the outbox for new messages: [`empty`](Outbox::empty) returns after the queued ones
    /// are sent.
    pub fn end(&self) {
        self.lock().over = true;
        self.more.notify_one();
    }

    /// Sends queued messages until [`end`](Outbox::end) is called.
    pub fn empty(&self, to: &Stream) {
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
            if to.send(&batch).is_err() {
                let mut state = self.lock();
                (state.over, state.bytes) = (true, BytesMut::new());
                drop(state);
                // The microprocess that reads from this client sees the end of the connection.
                return self.client.kill();
            }
            drop(batch);
            let mut state = self.lock();
            state.under_way = 0;
            let left = state.bytes.len().saturating_sub(SMALL_REPLY);
            state.share.resize(left);
        }
    }
}

type Subscribers = BTreeMap<u64, Arc<Outbox>>;

/// Target of a subscription.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum To {
    /// The channel of exactly this name.
    Channel,
    /// All channels whose names match the pattern.
    Pattern,
}

/// Subscribers that receive a message in a slice of its publication.
const SLICE: usize = 16;
/// Steps of comparisons with patterns in a slice.
const SLICE_STEPS: usize = 1 << 16;
/// Number of locks that order the messages of channels.
const TURNS: usize = 16;

/// All channels and patterns with subscribers.
#[derive(Default)]
pub struct Channels {
    to: RwLock<Subscriptions>,
    /// Held while a message is published, by the hash of its channel.
    turns: [Mutex<()>; TURNS],
    hasher: foldhash::quality::RandomState,
}

/// A message on its way to the subscribers of one channel or pattern.
struct Delivery {
    /// The message in each version of the protocol.
    forms: [BytesMut; 2],
    /// The client that has received it last. Clients receive it in the order of their IDs.
    last: Option<u64>,
    count: usize,
}

impl Delivery {
    fn new(words: &[&[u8]]) -> Delivery {
        let forms = [Version::Two, Version::Three].map(|version| {
            let mut form = Reply::new(version);
            form.push(words.len());
            words.iter().for_each(|word| form.bulk(word));
            form.bytes
        });
        Delivery { forms, last: None, count: 0 }
    }

    /// Queues the message for the next subscribers. Returns whether more may follow.
    fn send_some(&mut self, subscribers: &Subscribers) -> bool {
        let from = self.last.map_or(Bound::Unbounded, Bound::Excluded);
        let mut left = SLICE;
        for (id, outbox) in subscribers.range((from, Bound::Unbounded)).take(SLICE) {
            outbox.put(|version| &self.forms[usize::from(version == Version::Three)]);
            (self.last, self.count, left) = (Some(*id), self.count + 1, left - 1);
        }
        left == 0
    }
}

#[derive(Default)]
struct Subscriptions {
    channels: HashMap<Box<[u8]>, Subscribers, foldhash::quality::RandomState>,
    patterns: BTreeMap<Box<[u8]>, Subscribers>,
}

impl Channels {
    /// Subscribes `outbox`. The confirmation `told` is queued before any message can be published
    /// to the subscription.
    pub fn subscribe(&self, to: To, name: &[u8], outbox: &Arc<Outbox>, told: &[u8]) {
        let mut all = self.to.write().unwrap_or_else(PoisonError::into_inner);
        let subscribers = match to {
            To::Channel => all.channels.entry(name.into()).or_default(),
            To::Pattern => all.patterns.entry(name.into()).or_default(),
        };
        subscribers.insert(outbox.client.id, Arc::clone(outbox));
        outbox.put(|_| told);
    }

    /// Removes the subscription of `outbox` and queues the confirmation `told`.
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

    /// Sends `message` to all subscribers of `channel`. Returns the number of receivers.
    ///
    /// Works in slices, between which no lock that a subscriber needs is held, and calls `pause`. A
    /// client that subscribes meanwhile may receive the message or not. All subscribers of a
    /// channel receive its messages in the same order.
    pub fn publish(&self, channel: &[u8], message: &[u8], mut pause: impl FnMut()) -> usize {
        let turn = self.hasher.hash_one(channel) as usize % TURNS;
        let _turn = self.turns[turn].lock().unwrap_or_else(PoisonError::into_inner);
        let direct = Delivery::new(&[b"message", channel, message]);
        let mut count = self.deliver(direct, &mut pause, |all| all.channels.get(channel));
        let mut behind = Bound::Unbounded;
        while let Some((pattern, matched)) = self.next_pattern(&behind, channel, &mut pause) {
            if matched {
                let delivery = Delivery::new(&[b"pmessage", &pattern, channel, message]);
                count += self.deliver(delivery, &mut pause, |all| all.patterns.get(&pattern));
            }
            behind = Bound::Excluded(pattern);
        }
        count
    }

    /// Queues a message for the subscribers that `of` finds. Returns their number.
    fn deliver(
        &self,
        mut delivery: Delivery,
        pause: &mut impl FnMut(),
        of: impl Fn(&Subscriptions) -> Option<&Subscribers>,
    ) -> usize {
        loop {
            let all = self.to.read().unwrap_or_else(PoisonError::into_inner);
            let more = of(&all).is_some_and(|subscribers| delivery.send_some(subscribers));
            drop(all);
            if !more {
                return delivery.count;
            }
            pause();
        }
    }

    /// The first pattern behind `behind` that matches `channel`, or the last one that was compared
    /// with it in a slice, and whether it matches. `None` if there is none.
    fn next_pattern(
        &self,
        behind: &Bound<Box<[u8]>>,
        channel: &[u8],
        pause: &mut impl FnMut(),
    ) -> Option<(Box<[u8]>, bool)> {
        let all = self.to.read().unwrap_or_else(PoisonError::into_inner);
        let mut steps = 0_usize;
        let from = match behind {
            Bound::Excluded(pattern) => Bound::Excluded(&**pattern),
            _ => Bound::Unbounded,
        };
        let mut last = None;
        for pattern in all.patterns.range::<[u8], _>((from, Bound::Unbounded)).map(|(one, _)| one) {
            steps = steps.saturating_add(glob::cost(pattern, channel));
            if steps > SLICE_STEPS {
                last = Some(pattern.clone());
                break;
            }
            if glob::matches(pattern, channel) {
                return Some((pattern.clone(), true));
            }
        }
        drop(all);
        let pattern = last?;
        // Compared without the lock: the comparison may be too long for a slice.
        let mut matching = glob::Matching::default();
        loop {
            pause();
            if let Some(matched) = matching.run(&pattern, channel, SLICE_STEPS) {
                return Some((pattern, matched));
            }
        }
    }

    /// Numbers of channels and of patterns that have subscribers.
    pub fn counts(&self) -> (usize, usize) {
        let all = self.to.read().unwrap_or_else(PoisonError::into_inner);
        (all.channels.len(), all.patterns.len())
    }
}

#[cfg(test)]
mod tests;
