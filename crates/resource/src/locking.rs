//! How resources are kept from being used by two at once: the design `vp` (P3's open problem) and,
//! with the feature `lab`, P3's own two for comparison (4.3 and 4.4), chosen at start.
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
    #[cfg(feature = "lab")]
    Kind,
    /// One lock a resource.
    #[cfg(feature = "lab")]
    Id,
    /// Nothing in common that needs one.
    #[default]
    Vp,
}

impl Locking {
    /// All designs of this build, coarse to fine.
    #[cfg(feature = "lab")]
    pub const ALL: [Locking; 3] = [Locking::Kind, Locking::Id, Locking::Vp];
    /// All designs of this build: without the feature `lab`, one.
    #[cfg(not(feature = "lab"))]
    pub const ALL: [Locking; 1] = [Locking::Vp];

    /// Names of the designs that the feature `lab` adds.
    const OF_LAB: [&'static str; 2] = ["kind", "id"];

    /// As [`FromStr`] reads it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            #[cfg(feature = "lab")]
            Locking::Kind => "kind",
            #[cfg(feature = "lab")]
            Locking::Id => "id",
            Locking::Vp => "vp",
        }
    }

    /// Whether all resources of a kind share one lock.
    #[inline]
    pub(crate) const fn is_by_kind(self) -> bool {
        match self {
            #[cfg(feature = "lab")]
            Locking::Kind => true,
            #[cfg(feature = "lab")]
            Locking::Id => false,
            Locking::Vp => false,
        }
    }
}

impl fmt::Display for Locking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that names no design of this build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockingError(String);

impl fmt::Display for LockingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let wanted = if cfg!(feature = "lab") { "kind, id or vp" } else { "vp" };
        match Locking::OF_LAB.contains(&self.0.as_str()) {
            true => write!(f, "{:?} needs the feature `lab`: {wanted} is wanted", self.0),
            false => write!(f, "{:?} is no locking design: {wanted} is wanted", self.0),
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn designs_for_comparison_need_the_feature_lab() {
        assert_eq!("vp".parse(), Ok(Locking::Vp));
        for name in ["kind", "id"] {
            match name.parse::<Locking>() {
                Ok(design) => assert!(cfg!(feature = "lab") && design.name() == name),
                Err(why) => {
                    let wanted = format!("{name:?} needs the feature `lab`: vp is wanted");
                    assert!(!cfg!(feature = "lab") && why.to_string() == wanted, "{why}");
                }
            }
        }
        let why = "loose".parse::<Locking>().unwrap_err().to_string();
        assert!(why.starts_with("\"loose\" is no locking design: "), "{why}");
    }
}
