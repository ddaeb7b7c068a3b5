//! Locks with their holders and waiters, and chains of microprocesses that wait for each other.

use std::fmt;

use kumihimo_resource::id::Id;
use serde::{Deserialize, Serialize};

use crate::short_id::ShortId;

/// Largest number of locks, and of chains, in one answer.
pub const MOST_LOCKS: u32 = 10_000;
/// Number of waiters that are listed for one lock: those that have waited longest.
pub const LISTED_WAITERS: usize = 10;

/// The locks of an address space for which microprocesses wait, and the chains among the waiters.
///
/// # Examples
///
/// ```
/// use kumihimo::observe;
///
/// let report = observe::locks();
/// assert!(report.chains.iter().all(|chain| !chain.is_cycle), "there is no deadlock");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Locks {
    /// Totals.
    pub totals: LockTotals,
    /// The locks; those with the most waiters first.
    pub locks: Vec<Lock>,
    /// Cycles first, and then chains of at least two waits, the longest wait first.
    pub chains: Vec<Chain>,
}

/// Numbers of the whole address space.
///
/// # Examples
///
/// ```
/// use kumihimo::observe::{self, LockTotals};
///
/// let LockTotals { waiters, locks, .. } = observe::locks().totals;
/// assert_eq!((waiters, locks), (0, 0), "nobody waits");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockTotals {
    /// Number of microprocesses that wait for a lock.
    pub waiters: u64,
    /// Number of locks for which microprocesses wait.
    pub locks: u64,
    /// Number of chains that are no cycles.
    pub chains: u64,
    /// Number of cycles.
    pub cycles: u64,
}

/// A lock for which microprocesses wait. Kernel threads outside of the runtime that wait are not
/// counted.
///
/// # Examples
///
/// ```
/// use kumihimo::observe::{self, Holder};
/// use kumihimo::sync::Mutex;
/// use kumihimo::thread;
///
/// let mutex = Mutex::new(());
/// let guard = mutex.lock().unwrap();
/// thread::scope(|scope| {
///     scope.spawn(|| drop(mutex.lock()));
///     let lock = loop {
///         match observe::locks().locks.pop() {
///             Some(lock) => break lock,
///             None => thread::yield_now(),
///         }
///     };
///     assert_eq!((lock.kind.as_str(), lock.waiters), ("mutex", 1));
///     assert_ne!(lock.holder, Holder::Free);
///     drop(guard);
/// });
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// `mutex`, `rwlock`, `once`, `semaphore`, `futex` or `spinlock`.
    pub kind: String,
    /// Address of the lock.
    pub address: u64,
    /// The holder.
    pub holder: Holder,
    /// What the holder does, if that is known: `waits for the clock`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder_does: Option<String>,
    /// Number of waiting microprocesses.
    pub waiters: u64,
    /// For how many nanoseconds the longest of these waits has lasted. The lock has been busy for
    /// about as long, although perhaps with several holders.
    pub longest_ns: u64,
    /// The waiters that have waited longest, [`LISTED_WAITERS`] at most.
    #[serde(default)]
    pub first: Vec<LockWaiter>,
}

/// A microprocess that waits for a lock.
///
/// # Examples
///
/// ```
/// use kumihimo::observe::{self, LockWaiter};
///
/// let longest = observe::locks().locks.into_iter().flat_map(|lock| lock.first).next();
/// if let Some(LockWaiter { id, waiting_ns, .. }) = longest {
///     println!("{id} has waited for {waiting_ns} ns");
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWaiter {
    /// The microprocess.
    pub id: Id,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// For how many nanoseconds its wait has lasted.
    pub waiting_ns: u64,
    /// Whether the wait ends at a deadline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_timed: bool,
}

/// The holder of a lock, as far as the lock records it.
///
/// # Examples
///
/// ```
/// use kumihimo::observe::Holder;
///
/// assert_eq!(Holder::Readers { count: 2 }.to_string(), "held by 2 readers");
/// assert_eq!(Holder::Unknown.to_string(), "holder unknown");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Holder {
    /// A microprocess.
    Microprocess {
        /// Its ID.
        id: Id,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    /// A kernel thread that is no microprocess, or that locked inside `blocking`.
    KernelThread {
        /// Its ID.
        thread: i32,
    },
    /// Readers. Which ones they are is not recorded.
    Readers {
        /// Their number.
        count: u32,
    },
    /// A microprocess that ended without unlocking.
    Ended,
    /// No thread: the lock was free at that moment, and a waiter is about to take it.
    Free,
    /// Not recorded by this kind of lock, or not readable.
    #[default]
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Microprocess { id, name } => write!(f, "held by {}", Named(*id, name)),
            Holder::KernelThread { thread } => write!(f, "held by kernel thread {thread}"),
            Holder::Readers { count: 1 } => write!(f, "held by 1 reader"),
            Holder::Readers { count } => write!(f, "held by {count} readers"),
            Holder::Ended => write!(f, "held by a microprocess that has ended"),
            Holder::Free => write!(f, "free at the moment"),
            Holder::Unknown => write!(f, "holder unknown"),
        }
    }
}

/// A microprocess by ID and name: `12.42.7 (worker)`.
struct Named<'a>(Id, &'a Option<String>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ShortId(self.0))?;
        match self.1 {
            Some(name) => write!(f, " ({name})"),
            None => Ok(()),
        }
    }
}

/// Microprocesses of which each one waits for the next one: because that holds a lock, or because
/// the wait is for its end.
///
/// In a cycle the last one waits for the first one. A cycle is a deadlock of its members, also if
/// other microprocesses still run. It was confirmed: there was a moment at which every member
/// waited for the next one.
///
/// # Examples
///
/// ```
/// use kumihimo::observe;
///
/// for cycle in observe::locks().chains.iter().filter(|chain| chain.is_cycle) {
///     eprintln!("deadlock: {cycle}");
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chain {
    /// Whether the last one waits for the first one.
    pub is_cycle: bool,
    /// The members, in the order of their waits.
    pub links: Vec<Link>,
    /// Number of further microprocesses that begin the same chain: they wait for the same object.
    #[serde(default)]
    pub others: u64,
}

/// A member of a [`Chain`].
///
/// # Examples
///
/// ```
/// use kumihimo::observe::{self, Link};
///
/// for Link { id, does, .. } in observe::locks().chains.into_iter().flat_map(|one| one.links) {
///     println!("{id:?} {does}");
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// The microprocess. `None` for a kernel thread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Id>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The kernel thread, if the member is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel_thread: Option<i32>,
    /// What it does: `waits for the mutex at 0x7f0012345678`, `is queued`.
    pub does: String,
    /// For how many nanoseconds its wait has lasted, if it waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_ns: Option<u64>,
    /// Whether the wait ends at a deadline.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_timed: bool,
    /// Why it waits for the next member.
    #[serde(default)]
    pub because: Because,
}

/// Why one member of a [`Chain`] waits for the next one.
///
/// # Examples
///
/// ```
/// use kumihimo::observe::{self, Because};
///
/// let links = observe::locks().chains.into_iter().flat_map(|chain| chain.links);
/// let for_locks = links.filter(|link| link.because == Because::Holds).count();
/// assert_eq!(for_locks, 0, "nobody waits");
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Because {
    /// The next one holds the lock.
    Holds,
    /// The wait is for the end of the next one.
    End,
    /// The next one is a child of the scope whose end it waits for.
    Child,
    /// It waits for no other member, or the reason is of a later version.
    #[default]
    #[serde(other)]
    Unknown,
}

impl Link {
    fn named(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.id, self.kernel_thread) {
            (Some(id), _) => write!(f, "{}", Named(id, &self.name)),
            (None, Some(thread)) => write!(f, "kernel thread {thread}"),
            (None, None) => write!(f, "another thread"),
        }
    }
}

/// One line: `1.3.1 (a) waits for the mutex at 0x10, held by 1.4.1 (b), which is queued`.
impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.links.len().saturating_sub(1);
        for (nth, link) in self.links.iter().enumerate() {
            if nth == 0 {
                link.named(f)?;
            }
            write!(f, " {}", link.does)?;
            if link.is_timed {
                write!(f, " until a deadline")?;
            }
            let next = match self.links.get(nth + 1) {
                Some(next) => next,
                None if self.is_cycle => &self.links[0],
                None => continue,
            };
            match link.because {
                Because::Holds => write!(f, ", held by ")?,
                Because::Child => write!(f, ", of which ")?,
                Because::End => write!(f, ": ")?,
                Because::Unknown => write!(f, ", because of ")?,
            }
            next.named(f)?;
            if nth < last && link.because == Because::Holds {
                write!(f, ", which")?;
            }
        }
        Ok(())
    }
}

/// A part of an answer about locks: first the totals.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LockItem {
    /// The totals.
    Totals(LockTotals),
    /// A lock.
    Lock(Box<Lock>),
    /// A chain or a cycle.
    Chain(Chain),
}

impl Locks {
    /// Adds a part of an answer.
    #[doc(hidden)]
    pub fn add(&mut self, item: LockItem) {
        match item {
            LockItem::Totals(totals) => self.totals = totals,
            LockItem::Lock(lock) => self.locks.push(*lock),
            LockItem::Chain(chain) => self.chains.push(chain),
        }
    }
}

#[cfg(test)]
mod tests;
