//! How resources are kept from being used by two at once: three designs, chosen at start (P3, 4.3
//! and 4.4, and its open problem).
//!
//! - `kind`: lock of a resource: one lock a kind; the name tree: one lock; free slots and counters
//!   of a kind: under the kind's lock.
//! - `id`: lock of a resource: one lock each; the name tree: one lock a kind; free slots and
//!   counters of a kind: a part a virtual processor.
//! - `vp`: lock of a resource: nothing for the only user; else claimed by each user; the name tree:
//!   many small parts, by name; free slots and counters of a kind: a part a virtual processor.
//!
//! A part's lock is its virtual processor's: another one takes it only when that has no free slot
//! left, or far too many.

use std::fmt;
use std::hint::spin_loop;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// The design in use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Locking {
    /// One lock a kind.
    Kind,
    /// One lock a resource.
    Id,
    /// Nothing in common that needs one.
    #[default]
    Vp,
}

impl Locking {
    /// All of them, coarse to fine.
    pub const ALL: [Locking; 3] = [Locking::Kind, Locking::Id, Locking::Vp];

    /// As [`FromStr`] reads it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Locking::Kind => "kind",
            Locking::Id => "id",
            Locking::Vp => "vp",
        }
    }
}

impl fmt::Display for Locking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no design.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockingError(String);

impl fmt::Display for LockingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no locking design: kind, id or vp is wanted", self.0)
    }
}

impl std::error::Error for LockingError {}

impl FromStr for Locking {
    type Err = LockingError;

    fn from_str(text: &str) -> Result<Locking, LockingError> {
        Locking::ALL
            .into_iter()
            .find(|design| design.name() == text)
            .ok_or_else(|| LockingError(text.to_owned()))
    }
}

/// As `KUMI_LAB=locking=...` asks.
impl From<kumihimo_config::Locking> for Locking {
    fn from(design: kumihimo_config::Locking) -> Locking {
        match design {
            kumihimo_config::Locking::Kind => Locking::Kind,
            kumihimo_config::Locking::Id => Locking::Id,
            kumihimo_config::Locking::Vp => Locking::Vp,
        }
    }
}

/// The lock of one resource, where its kind keeps it: held for the time of one operation. Its
/// holder must not lose its virtual processor.
#[derive(Debug, Default)]
pub struct Claim(AtomicBool);

/// A resource that is the holder's.
#[derive(Debug)]
#[must_use]
pub struct Claimed<'a>(&'a Claim);

impl Claim {
    /// Nobody's.
    #[must_use]
    pub const fn new() -> Claim {
        Claim(AtomicBool::new(false))
    }

    /// Takes it; waits, without giving the kernel thread up but for moments, while somebody else
    /// has it.
    #[inline]
    pub fn take(&self) -> Claimed<'_> {
        // Acquire: what the last holder did to the resource is done.
        if self.0.swap(true, Ordering::Acquire) {
            self.wait();
        }
        Claimed(self)
    }

    #[cold]
    fn wait(&self) {
        let mut turns = 0u32;
        loop {
            while self.0.load(Ordering::Relaxed) {
                turns += 1;
                // Its holder's kernel thread may have lost its core: then only giving up ours
                // helps.
                if turns.is_multiple_of(128) { std::thread::yield_now() } else { spin_loop() }
            }
            if !self.0.swap(true, Ordering::Acquire) {
                return;
            }
        }
    }
}

impl Drop for Claimed<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}
