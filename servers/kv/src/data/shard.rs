//! A part of a database, behind one lock: a hash table of positions in a list of entries.
//!
//! An entry never moves while it lives, which is what `SCAN` needs: a scan through the positions
//! sees each entry that was there all the time exactly once, however the hash table grows
//! meanwhile.

use std::collections::{BTreeSet, HashMap, VecDeque};

use hashbrown::HashTable;
use kumihimo::sync::Arc;
use kumihimo::sync::atomic::Ordering::Relaxed;

use super::key::{FOREVER, Key, Time};
use super::shared::Shared;
use super::value::{End, List, Value, chunk};
use super::waiter::Waiter;

/// A key with its value.
pub struct Entry {
    /// Its name.
    pub key: Box<[u8]>,
    /// What it holds. Changes go through [`Shard::change`], which keeps account.
    pub value: Value,
    /// When it expires.
    pub expires: Time,
    hash: u64,
}

enum Slot {
    Used(Entry),
    /// The next free one.
    Free(Option<u32>),
}

/// A part of a database.
pub struct Shard {
    table: HashTable<u32>,
    slots: Vec<Slot>,
    free: Option<u32>,
    /// What expires, by time.
    due: BTreeSet<(Time, u32)>,
    /// Waiters for an item under a key, in order of arrival.
    waiting: HashMap<Box<[u8]>, VecDeque<Arc<Waiter>>, foldhash::quality::RandomState>,
    shared: Arc<Shared>,
    /// Which database this is part of.
    number: u8,
    /// What table and slots were counted with.
    counted: usize,
}

/// A command was meant for another kind of value.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Shard {
    /// An empty one, of database `number`.
    pub fn new(shared: Arc<Shared>, number: u8) -> Shard {
        Shard {
            table: HashTable::new(),
            slots: Vec::new(),
            free: None,
            due: BTreeSet::new(),
            waiting: HashMap::default(),
            shared,
            number,
            counted: 0,
        }
    }

    /// Where `key` is. One that has expired by `now` is removed.
    pub fn find(&mut self, key: &Key<'_>, now: Time) -> Option<u32> {
        let slot = *self.table.find(key.hash, |&slot| match &self.slots[slot as usize] {
            Slot::Used(entry) => *entry.key == *key.bytes,
            Slot::Free(_) => false,
        })?;
        if self.entry(slot).expires <= now {
            self.expire(slot);
            return None;
        }
        Some(slot)
    }

    /// The entry at `slot`.
    ///
    /// # Panics
    /// If there is none.
    pub fn entry(&self, slot: u32) -> &Entry {
        match &self.slots[slot as usize] {
            Slot::Used(entry) => entry,
            Slot::Free(_) => panic!("a free slot was taken for an entry"),
        }
    }

    fn entry_mut(&mut self, slot: u32) -> &mut Entry {
        match &mut self.slots[slot as usize] {
            Slot::Used(entry) => entry,
            Slot::Free(_) => panic!("a free slot was taken for an entry"),
        }
    }

    /// The text under `key`.
    ///
    /// # Errors
    /// It is something else.
    pub fn text(&mut self, key: &Key<'_>, now: Time) -> Result<Option<&[u8]>, &'static str> {
        let Some(slot) = self.find(key, now) else { return Ok(None) };
        match &self.entry(slot).value {
            Value::Text(text) => Ok(Some(text)),
            Value::List(_) => Err(WRONG_TYPE),
        }
    }

    /// The list under `key`, and where it is.
    ///
    /// # Errors
    /// It is something else.
    pub fn list(&mut self, key: &Key<'_>, now: Time) -> Result<Option<(u32, &List)>, &'static str> {
        let Some(slot) = self.find(key, now) else { return Ok(None) };
        match &self.entry(slot).value {
            Value::List(list) => Ok(Some((slot, list))),
            Value::Text(_) => Err(WRONG_TYPE),
        }
    }

    /// Gives `key`, which is at `slot` if it is there, the text `value` and the time `expires`. The
    /// value that it had is given back if it was no text: to be dropped without the lock.
    pub fn set(
        &mut self,
        key: &Key<'_>,
        slot: Option<u32>,
        value: &[u8],
        expires: Time,
    ) -> Option<Value> {
        let Some(slot) = slot else {
            let mut text = Vec::with_capacity(value.len());
            text.extend_from_slice(value);
            let slot = self.insert(key, Value::Text(text));
            self.set_expiry(slot, expires);
            return None;
        };
        if self.entry(slot).expires != expires {
            self.set_expiry(slot, expires);
        }
        self.change(slot, |old| match old {
            // Room that fits is used again.
            Value::Text(text)
                if text.capacity() >= value.len() && text.capacity() / 2 <= value.len() + 32 =>
            {
                text.clear();
                text.extend_from_slice(value);
                None
            }
            old => Some(std::mem::replace(old, Value::Text(value.to_vec()))),
        })
    }

    /// Adds `key`, which must not be there.
    pub fn insert(&mut self, key: &Key<'_>, value: Value) -> u32 {
        let entry = Entry { key: key.bytes.into(), value, expires: FOREVER, hash: key.hash };
        self.account(0, chunk(entry.key.len()) + entry.value.footprint());
        let slot = match self.free {
            Some(slot) => {
                let Slot::Free(next) = self.slots[slot as usize] else {
                    unreachable!("the free list has free slots")
                };
                self.free = next;
                self.slots[slot as usize] = Slot::Used(entry);
                slot
            }
            None => {
                let slot =
                    u32::try_from(self.slots.len()).expect("fewer than 2^32 keys fit into memory");
                self.slots.push(Slot::Used(entry));
                slot
            }
        };
        let slots = &self.slots;
        self.table.insert_unique(key.hash, slot, |&slot| match &slots[slot as usize] {
            Slot::Used(entry) => entry.hash,
            Slot::Free(_) => 0,
        });
        self.recount();
        slot
    }

    /// Removes what is at `slot`: to be dropped without the lock.
    pub fn remove(&mut self, slot: u32) -> Entry {
        self.set_expiry(slot, FOREVER);
        let free = Slot::Free(self.free.replace(slot));
        let Slot::Used(entry) = std::mem::replace(&mut self.slots[slot as usize], free) else {
            panic!("a free slot was taken for an entry")
        };
        if let Ok(found) = self.table.find_entry(entry.hash, |&other| other == slot) {
            found.remove();
        }
        self.account(chunk(entry.key.len()) + entry.value.footprint(), 0);
        if self.table.is_empty() {
            // The last one is gone: nobody's position is lost.
            (self.slots, self.free, self.table) = (Vec::new(), None, HashTable::new());
            self.recount();
        }
        entry
    }

    /// Changes the value at `slot`.
    pub fn change<R>(&mut self, slot: u32, change: impl FnOnce(&mut Value) -> R) -> R {
        let value = &mut self.entry_mut(slot).value;
        let before = value.footprint();
        let result = change(value);
        let after = value.footprint();
        if before != after {
            self.account(before, after);
        }
        result
    }

    /// Changes the list at `slot`, which is removed if it is empty then.
    pub fn change_list<R>(&mut self, slot: u32, change: impl FnOnce(&mut List) -> R) -> R {
        let (result, empty) = self.change(slot, |value| match value {
            Value::List(list) => (change(list), list.is_empty()),
            Value::Text(_) => panic!("a text was taken for a list"),
        });
        if empty {
            drop(self.remove(slot));
        }
        result
    }

    /// What is at `slot` expires then.
    pub fn set_expiry(&mut self, slot: u32, expires: Time) {
        let entry = self.entry_mut(slot);
        let before = std::mem::replace(&mut entry.expires, expires);
        if before != FOREVER {
            self.due.remove(&(before, slot));
        }
        if expires != FOREVER {
            self.due.insert((expires, slot));
        }
    }

    fn expire(&mut self, slot: u32) {
        let entry = self.remove(slot);
        self.shared.expired.fetch_add(1, Relaxed);
        // A reader of the log must not take it for alive when it was not.
        self.record(&[b"DEL", &entry.key]);
    }

    /// Removes what has expired, at most `limit` keys. Whether there may be more.
    pub fn expire_due(&mut self, now: Time, limit: usize) -> bool {
        for _ in 0..limit {
            match self.due.first() {
                Some(&(time, slot)) if time <= now => self.expire(slot),
                _ => return false,
            }
        }
        true
    }

    /// How many keys.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// How many of them expire, and the sum of their times.
    pub fn expiring(&self) -> (usize, u128) {
        (self.due.len(), self.due.iter().map(|(time, _)| u128::from(*time)).sum())
    }

    /// All entries, expired ones too.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.slots.iter().filter_map(|slot| match slot {
            Slot::Used(entry) => Some(entry),
            Slot::Free(_) => None,
        })
    }

    /// At most `count` positions from `from` on: what is there, and where to go on, if not at the
    /// end.
    pub fn scan(&self, from: usize, count: usize) -> (impl Iterator<Item = &Entry>, Option<usize>) {
        let from = from.min(self.slots.len());
        let to = from.saturating_add(count).min(self.slots.len());
        let entries = self.slots[from..to].iter().filter_map(|slot| match slot {
            Slot::Used(entry) => Some(entry),
            Slot::Free(_) => None,
        });
        (entries, (to < self.slots.len()).then_some(to))
    }

    /// Removes everything: to be dropped without the lock.
    pub fn clear(&mut self) -> impl Sized + use<> {
        let gone: usize =
            self.entries().map(|entry| chunk(entry.key.len()) + entry.value.footprint()).sum();
        self.account(gone, 0);
        let all = (
            std::mem::take(&mut self.table),
            std::mem::take(&mut self.slots),
            std::mem::take(&mut self.due),
            self.free.take(),
        );
        self.recount();
        all
    }

    /// Writes down what changed here, while nobody else can change it.
    pub fn record(&self, command: &[&[u8]]) {
        if let Some(log) = self.shared.log.get() {
            log.append(self.number, command);
        }
    }

    /// `waiter` waits for an item under `key`.
    pub fn wait(&mut self, key: &Key<'_>, waiter: Arc<Waiter>) {
        self.waiting.entry(key.bytes.into()).or_default().push_back(waiter);
    }

    /// `waiter` waits no more.
    pub fn leave(&mut self, key: &Key<'_>, waiter: &Arc<Waiter>) {
        if let Some(queue) = self.waiting.get_mut(key.bytes) {
            queue.retain(|other| !Arc::ptr_eq(other, waiter));
            if queue.is_empty() {
                self.waiting.remove(key.bytes);
            }
        }
    }

    /// Gives the items of the list at `slot`, just put there, to their waiters: first come, first
    /// served.
    pub fn serve(&mut self, key: &Key<'_>, slot: u32) {
        if self.waiting.is_empty() {
            return;
        }
        while let Some(queue) = self.waiting.get_mut(key.bytes) {
            let Some(waiter) = queue.pop_front() else {
                self.waiting.remove(key.bytes);
                return;
            };
            // Waiters that gave up meanwhile get nothing.
            let Some(claim) = waiter.claim() else { continue };
            let (item, last) = self.change(slot, |value| match value {
                Value::List(list) => (list.pop(waiter.end), list.is_empty()),
                Value::Text(_) => panic!("a text was taken for a list"),
            });
            let name: &[u8] = if waiter.end == End::Left { b"LPOP" } else { b"RPOP" };
            self.record(&[name, key.bytes]);
            claim.give(key.bytes.into(), item.expect("a list is never empty"));
            if last {
                drop(self.remove(slot));
                if self.waiting.get(key.bytes).is_some_and(VecDeque::is_empty) {
                    self.waiting.remove(key.bytes);
                }
                return;
            }
        }
    }

    fn account(&self, less: usize, more: usize) {
        self.shared.count(less, more);
    }

    fn recount(&mut self) {
        let now = self.table.allocation_size() + self.slots.capacity() * size_of::<Slot>();
        if now != self.counted {
            self.account(self.counted, now);
            self.counted = now;
        }
    }
}
