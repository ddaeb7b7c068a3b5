//! Holders of locks: from the waits of microprocesses to the threads that hold what they wait for.
//!
//! A lock publishes nothing for this and costs no more than without. The record of a waiter has the
//! address of the lock, and the lock's own word identifies the holder (`lock_layout.rs`). The
//! reader is another thread, and the lock may be gone at any time, so:
//!
//! 1. The reader notes state, generation, number of switches and start of the wait ([`Waiting`]).
//! 2. The kernel copies the lock's word ([`kumihimo_backtrace::copy`]), which cannot fault,
//!    whatever the address is by then. No reference to the lock is ever made.
//! 3. The reader compares state, generation, switches and start again. If all are the same, the
//!    waiter was parked all the time: a microprocess that runs counts a switch before it parks
//!    again. Its frame borrows the lock and did not return, so the word was that of the lock.
//!    Otherwise the copy is discarded.
//!
//! A mark is never dereferenced. It is looked up among the marks of all records.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{Ordering, fence};

use kumihimo_arch::tls;
use kumihimo_machine::locks::Holder;
use kumihimo_resource::id::Id;

use crate::memory::pool;
use crate::microprocess::lock_layout::{self, HolderWord};
use crate::microprocess::protocol::state::Phase;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::wait_reason::Wait;
use crate::microprocess::waiter::{mark_of, thread_of_mark};

/// Number of waiters of one lock by which its word is read, if those before have been woken
/// meanwhile.
const ATTEMPTS: u8 = 4;

/// A waiting microprocess at one moment.
#[derive(Clone, Copy)]
pub(crate) struct Waiting {
    pub(crate) who: Ref,
    pub(crate) wait: Wait,
    /// Whether the wait has a deadline.
    pub(crate) is_timed: bool,
    /// Start of the wait, on the instance's clock.
    pub(crate) since: u64,
    switches: u64,
}

impl Waiting {
    /// Returns the wait of a microprocess that is parked.
    pub(crate) fn of(mp: &'static Mp) -> Option<Waiting> {
        let who = mp.reference();
        // Acquire, in `phase`: the microprocess stored the fields below before it parked.
        if mp.state.phase() != Phase::Parked {
            return None;
        }
        let one = Waiting {
            who,
            wait: mp.waits_for()?,
            is_timed: mp.wait_kind.load(Ordering::Relaxed) & Wait::TIMED != 0,
            since: mp.waits_since.load(Ordering::Relaxed),
            switches: mp.switches(),
        };
        one.is_same().then_some(one)
    }

    /// Whether the microprocess has waited all the time since. A sticky microprocess counts no
    /// switches when it waits on its kernel thread, but the start of its wait is exact.
    pub(crate) fn is_same(&self) -> bool {
        // Orders the reads of the caller before those below.
        fence(Ordering::Acquire);
        let mp = self.who.mp;
        mp.state.phase() == Phase::Parked
            && self.who.is_current()
            && mp.switches() == self.switches
            && mp.waits_since.load(Ordering::Relaxed) == self.since
    }
}

/// Returns all waiting microprocesses.
pub(crate) fn waiting() -> Vec<Waiting> {
    let mut all = Vec::new();
    pool::for_each(|mp| all.extend(Waiting::of(mp)));
    all
}

/// Returns all microprocesses that wait for locks.
pub(crate) fn waiting_for_locks() -> Vec<Waiting> {
    let mut all = Vec::new();
    pool::for_each(|mp| {
        if mp.waits_for().is_some_and(lock_layout::is_lock) {
            all.extend(Waiting::of(mp).filter(|one| lock_layout::is_lock(one.wait)));
        }
    });
    all
}

/// The holder of a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Held {
    By(Ref),
    /// A kernel thread, by ID.
    ByThread(i32),
    Readers(u32),
    /// A microprocess that has ended.
    Ended,
    Free,
    Unknown,
}

impl Held {
    /// Describes the holder for reports.
    pub(crate) fn describe(self) -> Holder {
        match self {
            Held::By(who) => match Id::from_bits(who.id()) {
                Some(id) => Holder::Microprocess { id, name: name(who) },
                None => Holder::Unknown,
            },
            Held::ByThread(thread) => Holder::KernelThread { thread },
            Held::Readers(count) => Holder::Readers { count },
            Held::Ended => Holder::Ended,
            Held::Free => Holder::Free,
            Held::Unknown => Holder::Unknown,
        }
    }
}

/// Returns the name of a microprocess, if it has one.
pub(crate) fn name(who: Ref) -> Option<String> {
    (who.mp.label_len.load(Ordering::Acquire) != 0).then(|| who.mp.name_text())
}

/// A lock: kind and address of a wait.
type Key = (u8, usize);

/// The holders of the locks for which some microprocesses wait.
#[derive(Default)]
pub(crate) struct Holders(HashMap<Key, Held>);

impl Holders {
    /// Reads the holders of all locks that `waits` are for. One system call for each lock that
    /// records its holder, and one pass over all records.
    pub(crate) fn of<'a>(waits: impl IntoIterator<Item = &'a Waiting>) -> Holders {
        let mut words: HashMap<Key, Result<HolderWord, u8>> = HashMap::new();
        for one in waits {
            if !lock_layout::is_lock(one.wait) {
                continue;
            }
            let entry = words.entry(one.wait.encode());
            let attempts = match &entry {
                Entry::Vacant(_) => 0,
                Entry::Occupied(known) => match known.get() {
                    Ok(_) => continue,
                    Err(attempts) => *attempts,
                },
            };
            if attempts < ATTEMPTS {
                let word = lock_layout::read(one.wait, kumihimo_backtrace::copy);
                let word = word.filter(|_| one.is_same()).ok_or(attempts + 1);
                entry.insert_entry(word);
            }
        }
        let (marks, blocks) = owners(words.values().filter_map(|word| word.as_ref().ok()));
        let held = |word| match word {
            HolderWord::Free => Held::Free,
            HolderWord::Readers(count) => Held::Readers(count),
            HolderWord::Mark(mark) => match thread_of_mark(mark) {
                Some(thread) => Held::ByThread(thread),
                None => marks.get(&mark).copied().flatten().map_or(Held::Ended, Held::By),
            },
            HolderWord::ThreadNumber(number) => match tls::block_of(number) {
                Some(block) => blocks.get(&block).copied().flatten().map_or(Held::Ended, Held::By),
                None => i32::try_from(number).map_or(Held::Unknown, Held::ByThread),
            },
        };
        Holders(
            words.into_iter().map(|(key, word)| (key, word.map_or(Held::Unknown, held))).collect(),
        )
    }

    /// Returns the holder of the lock that `wait` is for. `None` if it is no lock, or if none of
    /// the waits that the holders were read for is for this lock.
    pub(crate) fn get(&self, wait: Wait) -> Option<Held> {
        self.0.get(&wait.encode()).copied()
    }
}

/// The living microprocesses with some marks, and with some thread blocks.
type Owners = (HashMap<u64, Option<Ref>>, HashMap<usize, Option<Ref>>);

/// Finds the microprocesses that words of locks identify.
fn owners<'a>(words: impl Iterator<Item = &'a HolderWord>) -> Owners {
    let (mut marks, mut blocks) = (HashMap::new(), HashMap::new());
    for word in words {
        match *word {
            HolderWord::Mark(mark) if thread_of_mark(mark).is_none() => {
                marks.insert(mark, None);
            }
            HolderWord::ThreadNumber(number) => {
                blocks.extend(tls::block_of(number).map(|block| (block, None)));
            }
            _ => {}
        }
    }
    if !marks.is_empty() || !blocks.is_empty() {
        pool::for_each(|mp| {
            let who = mp.reference();
            let by_mark = marks.get_mut(&mark_of(mp));
            let by_block = blocks.get_mut(&mp.fs.get());
            if (by_mark.is_some() || by_block.is_some()) && who.is_alive() {
                by_mark.into_iter().chain(by_block).for_each(|place| *place = Some(who));
            }
        });
    }
    (marks, blocks)
}
