//! A part of a database behind one lock: a hash table of slot numbers, and the list of slots with
//! the entries.
//!
//! An entry never moves while it exists. `SCAN` depends on this: a scan over the slots returns each
//! entry that exists during the whole scan exactly once, even if the hash table grows meanwhile.

use std::collections::{BTreeSet, HashMap, VecDeque};

use hashbrown::HashTable;
use kumihimo::sync::Arc;
use kumihimo::sync::atomic::Ordering::Relaxed;

use super::cleared::Cleared;
use super::entry::{Entry, Slot};
use super::key::{FOREVER, Key, Time};
use super::shared::Shared;
use super::value::{End, List, Value, chunk};
use super::waiter::Waiter;

/// A part of a database.
pub struct Shard {
    table: HashTable<u32>,
    slots: Vec<Slot>,
    free: Option<u32>,
    /// Entries that expire, ordered by time, and the sum of their times.
    due: BTreeSet<(Time, u32)>,
    due_sum: u128,
    /// Waiters for an item under a key, in order of arrival.
    waiting: HashMap<Box<[u8]>, VecDeque<Arc<Waiter>>, foldhash::quality::RandomState>,
    shared: Arc<Shared>,
    /// Number of the database to which this shard belongs.
    number: u8,
    /// Bytes with which the table and the slots are included in the memory accounting.
    counted: usize,
}

/// The error for a command on a value of another type.
pub const WRONG_TYPE: &str = "WRONGTYPE Operation against a key holding the wrong kind of value";

impl Shard {
    /// Creates an empty shard of database `number`.
    pub fn new(shared: Arc<Shared>, number: u8) -> Shard {
        Shard {
            table: HashTable::new(),
            slots: Vec::new(),
            free: None,
            due: BTreeSet::new(),
            due_sum: 0,
            waiting: HashMap::default(),
            shared,
            number,
            counted: 0,
        }
    }

    /// Returns the slot of `key`. Removes an entry that has expired by `now`.
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
    /// If the slot is free.
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
    /// If the value is not a text.
    pub fn text(&mut self, key: &Key<'_>, now: Time) -> Result<Option<&[u8]>, &'static str> {
        let Some(slot) = self.find(key, now) else { return Ok(None) };
        match &self.entry(slot).value {
            Value::Text(text) => Ok(Some(text)),
            Value::Large(text) => Ok(Some(text)),
            Value::List(_) => Err(WRONG_TYPE),
        }
    }

    /// The list under `key`, and its slot.
    ///
    /// # Errors
    /// If the value is not a list.
    pub fn list(&mut self, key: &Key<'_>, now: Time) -> Result<Option<(u32, &List)>, &'static str> {
        let Some(slot) = self.find(key, now) else { return Ok(None) };
        match &self.entry(slot).value {
            Value::List(list) => Ok(Some((slot, list))),
            Value::Text(_) | Value::Large(_) => Err(WRONG_TYPE),
        }
    }

    /// Sets `key`, which is at `slot` if it exists, to the text `value` with the expiry `expires`.
    /// Returns an old value that was not a text. The caller drops it after it has released the
    /// lock.
    pub fn set(
        &mut self,
        key: &Key<'_>,
        slot: Option<u32>,
        value: &[u8],
        expires: Time,
    ) -> Option<Value> {
        let Some(slot) = slot else {
            let slot = self.insert(key, Value::text(value.to_vec()));
            self.set_expiry(slot, expires);
            return None;
        };
        if self.entry(slot).expires != expires {
            self.set_expiry(slot, expires);
        }
        self.change(slot, |old| match old {
            // Reuse the old allocation if it fits.
            Value::Text(text)
                if text.capacity() >= value.len() && text.capacity() / 2 <= value.len() + 32 =>
            {
                text.clear();
                text.extend_from_slice(value);
                None
            }
            old => Some(std::mem::replace(old, Value::text(value.to_vec()))),
        })
    }

    /// As [`set`](Shard::set), with a value that has been made before the shard was locked.
    pub fn put(
        &mut self,
        key: &Key<'_>,
        slot: Option<u32>,
        value: Value,
        expires: Time,
    ) -> Option<Value> {
        let Some(slot) = slot else {
            let slot = self.insert(key, value);
            self.set_expiry(slot, expires);
            return None;
        };
        if self.entry(slot).expires != expires {
            self.set_expiry(slot, expires);
        }
        self.change(slot, |old| Some(std::mem::replace(old, value)))
    }

    /// Adds `key`, which must not exist, and returns its slot.
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

    /// Removes the entry at `slot`. The caller drops the entry after it has released the lock.
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
            // The shard is empty: no scan can miss an entry when positions start again at 0.
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

    /// Changes the list at `slot`, and removes the list if it is empty afterwards.
    pub fn change_list<R>(&mut self, slot: u32, change: impl FnOnce(&mut List) -> R) -> R {
        let (result, empty) = self.change(slot, |value| match value {
            Value::List(list) => (change(list), list.is_empty()),
            Value::Text(_) | Value::Large(_) => panic!("a text was taken for a list"),
        });
        if empty {
            drop(self.remove(slot));
        }
        result
    }

    /// Sets the expiry of the entry at `slot`.
    pub fn set_expiry(&mut self, slot: u32, expires: Time) {
        let entry = self.entry_mut(slot);
        let before = std::mem::replace(&mut entry.expires, expires);
        if before != FOREVER && self.due.remove(&(before, slot)) {
            self.due_sum -= u128::from(before);
        }
        if expires != FOREVER && self.due.insert((expires, slot)) {
            self.due_sum += u128::from(expires);
        }
    }

    fn expire(&mut self, slot: u32) {
        let entry = self.remove(slot);
        self.shared.expired.fetch_add(1, Relaxed);
        // Replay does not expire keys: without this record, a later command in the log would find
        // the key.
        self.record(&[b"DEL", &entry.key]);
    }

    /// Removes at most `limit` expired keys. Returns whether more may be left.
    pub fn expire_due(&mut self, now: Time, limit: usize) -> bool {
        for _ in 0..limit {
            match self.due.first() {
                Some(&(time, slot)) if time <= now => self.expire(slot),
                _ => return false,
            }
        }
        true
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Number of keys that expire, and the sum of their expiry times.
    pub fn expiring(&self) -> (usize, u128) {
        (self.due.len(), self.due_sum)
    }

    /// Visits at most `count` slots from `from` on, until `each` returns false. Returns the next
    /// position, or `None` at the end.
    pub fn scan(
        &self,
        from: usize,
        count: usize,
        mut each: impl FnMut(&Entry) -> bool,
    ) -> Option<usize> {
        let from = from.min(self.slots.len());
        let mut to = from.saturating_add(count).min(self.slots.len());
        for (at, slot) in (from..to).zip(&self.slots[from..to]) {
            if let Slot::Used(entry) = slot
                && !each(entry)
            {
                to = at + 1;
                break;
            }
        }
        (to < self.slots.len()).then_some(to)
    }

    /// Removes all entries, in a time that does not depend on their number. The caller frees them
    /// after it has released the lock.
    pub fn clear(&mut self) -> Cleared {
        (self.free, self.due_sum) = (None, 0);
        Cleared::new(
            Arc::clone(&self.shared),
            std::mem::take(&mut self.table),
            std::mem::take(&mut self.slots),
            std::mem::take(&mut self.due),
            std::mem::take(&mut self.counted),
        )
    }

    /// Appends a change to the log. The caller still holds the shard's lock, so records are in the
    /// order of the changes.
    pub fn record(&self, command: &[&[u8]]) {
        if let Some(log) = self.shared.log.get() {
            log.append(self.number, command);
        }
    }

    /// Queues `waiter` for an item under `key`.
    pub fn wait(&mut self, key: &Key<'_>, waiter: Arc<Waiter>) {
        self.waiting.entry(key.bytes.into()).or_default().push_back(waiter);
    }

    /// Removes `waiter` from the queue of `key`.
    pub fn leave(&mut self, key: &Key<'_>, waiter: &Arc<Waiter>) {
        if let Some(queue) = self.waiting.get_mut(key.bytes) {
            queue.retain(|other| !Arc::ptr_eq(other, waiter));
            if queue.is_empty() {
                self.waiting.remove(key.bytes);
            }
        }
    }

    /// Passes items of the list at `slot`, which has just received them, to waiters in order of
    /// arrival.
    pub fn serve(&mut self, key: &Key<'_>, slot: u32) {
        if self.waiting.is_empty() {
            return;
        }
        while let Some(queue) = self.waiting.get_mut(key.bytes) {
            let Some(waiter) = queue.pop_front() else {
                self.waiting.remove(key.bytes);
                return;
            };
            // A waiter that has timed out or was cancelled gets no item.
            let Some(claim) = waiter.claim() else { continue };
            let bytes = match &self.entry(slot).value {
                Value::List(list) => list.bytes_at(waiter.end, 1) + key.bytes.len() + 64,
                Value::Text(_) | Value::Large(_) => panic!("a text was taken for a list"),
            };
            // A waiter that holds too much memory gets an error, and the next one the item.
            let Some((claim, share)) = claim.reserve(bytes) else { continue };
            let (item, last) = self.change(slot, |value| match value {
                Value::List(list) => (list.pop(waiter.end), list.is_empty()),
                Value::Text(_) | Value::Large(_) => panic!("a text was taken for a list"),
            });
            let name: &[u8] = if waiter.end == End::Left { b"LPOP" } else { b"RPOP" };
            self.record(&[name, key.bytes]);
            claim.give(key.bytes.into(), item.expect("a list is never empty"), share);
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
