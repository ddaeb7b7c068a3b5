//! Waits by reason, and waits for locks by lock.

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use serde::Serialize;

use super::lanes::Place;
use super::stacks::{Stack, Stacks};

/// Reasons of waits that are for locks.
const LOCKS: [&str; 5] = ["mutex", "rwlock", "once", "semaphore", "spinlock"];

/// Number of locks that are kept apart, and of microprocesses for each.
const MOST_LOCKS: usize = 20_000;
const MOST_MEMBERS: usize = 64;
/// Numbers that the page shows.
const SHOWN_LOCKS: usize = 500;
const SHOWN_MEMBERS: usize = 8;

/// Number, sum and longest of some waits.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Waits {
    pub(super) count: u64,
    pub(super) total: u64,
    pub(super) longest: u64,
    /// The longest one.
    pub(super) at: Option<Place>,
}

impl Waits {
    fn add(&mut self, time: u64, at: &Place) {
        self.count += 1;
        self.total = self.total.saturating_add(time);
        if self.at.is_none() || time > self.longest {
            (self.longest, self.at) = (time, Some(at.clone()));
        }
    }
}

/// A lock: the reason of the wait and its address; 0 is unknown.
type Key = (Rc<str>, u64);

#[derive(Debug, Default)]
struct Lock {
    waits: Waits,
    /// Time that others waited for each holder, and their number; by name.
    holders: HashMap<Rc<str>, (u64, u64)>,
    waiters: HashMap<Rc<str>, (u64, u64)>,
}

/// What microprocesses of a run waited for.
#[derive(Debug, Default)]
pub(super) struct Contention {
    reasons: BTreeMap<Rc<str>, Waits>,
    locks: HashMap<Key, Lock>,
}

/// Name, time and number.
type Member = (String, u64, u64);

/// A lock in the page.
#[derive(Debug, Serialize)]
pub(super) struct ShownLock {
    kind: String,
    /// As text, because numbers of JavaScript have 53 bits.
    address: Option<String>,
    waits: Waits,
    holders: Vec<Member>,
    waiters: Vec<Member>,
    holder_stacks: Vec<Stack>,
    waiter_stacks: Vec<Stack>,
}

/// All of it in the page.
#[derive(Debug, Serialize)]
pub(super) struct Shown {
    reasons: Vec<(String, Waits)>,
    locks: Vec<ShownLock>,
    /// Number of locks with waits, of which `locks` are those with the longest sums.
    all_locks: usize,
    /// Whether some wait for a lock has no address: an older version recorded the trace.
    lacks_addresses: bool,
}

impl Contention {
    /// Adds a wait that is over. `lock` and `holder` are as recorded.
    pub(super) fn add(
        &mut self,
        reason: &Rc<str>,
        lock: Option<u64>,
        holder: Option<&Rc<str>>,
        waiter: &Rc<str>,
        (time, at): (u64, &Place),
    ) {
        self.reasons.entry(reason.clone()).or_default().add(time, at);
        if !LOCKS.contains(&&**reason) {
            return;
        }
        let mut key = (reason.clone(), lock.unwrap_or(0));
        if self.locks.len() >= MOST_LOCKS && !self.locks.contains_key(&key) {
            key.1 = 0;
        }
        let known = self.locks.entry(key).or_default();
        known.waits.add(time, at);
        let count = |members: &mut HashMap<Rc<str>, (u64, u64)>, name: &Rc<str>| {
            if members.len() < MOST_MEMBERS || members.contains_key(name) {
                let member = members.entry(name.clone()).or_default();
                (member.0, member.1) = (member.0.saturating_add(time), member.1 + 1);
            }
        };
        count(&mut known.waiters, waiter);
        holder.into_iter().for_each(|holder| count(&mut known.holders, holder));
    }

    pub(super) fn shown(&self, stacks: &Stacks) -> Shown {
        let mut reasons: Vec<_> =
            self.reasons.iter().map(|(name, waits)| (name.to_string(), waits.clone())).collect();
        reasons.sort_by_key(|(_, waits)| std::cmp::Reverse(waits.total));
        let all_locks = self.locks.len();
        let lacks_addresses = self.locks.keys().any(|(_, address)| *address == 0);
        let mut locks: Vec<_> = self.locks.iter().collect();
        locks.sort_by(|(a_key, a), (b_key, b)| {
            b.waits.total.cmp(&a.waits.total).then_with(|| a_key.cmp(b_key))
        });
        locks.truncate(SHOWN_LOCKS);
        let lock = |((kind, address), lock): (&Key, &Lock)| {
            let (holder_stacks, waiter_stacks) = stacks.of(*address);
            ShownLock {
                kind: kind.to_string(),
                address: (*address != 0).then(|| format!("{address:#x}")),
                waits: lock.waits.clone(),
                holders: members(&lock.holders),
                waiters: members(&lock.waiters),
                holder_stacks,
                waiter_stacks,
            }
        };
        Shown { reasons, locks: locks.into_iter().map(lock).collect(), all_locks, lacks_addresses }
    }
}

fn members(all: &HashMap<Rc<str>, (u64, u64)>) -> Vec<Member> {
    let mut all: Vec<Member> =
        all.iter().map(|(name, (time, count))| (name.to_string(), *time, *count)).collect();
    all.sort_by(|a, b| (b.1, &a.0).cmp(&(a.1, &b.0)));
    all.truncate(SHOWN_MEMBERS);
    all
}
