//! Locking designs of the resource table: `vp` (P3's open problem) and, with the feature `lab`,
//! P3's two designs for comparison (4.3 and 4.4). The design is chosen at start.
//!
//! - `kind`: one lock per kind guards its resources, free slots and counters; one lock guards the
//!   name tree.
//! - `id`: one lock per resource; one lock per kind guards the names; free slots and counters are
//!   partitioned by VP.
//! - `vp`: no lock for a resource with a single user, a claim by each user otherwise. The name tree
//!   is partitioned by name, free slots and counters by VP.
//!
//! A VP takes the lock of another VP's partition only if its own has no free slot left, or far too
//! many.

use std::fmt;
use std::hint::spin_loop;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

/// Locking design in use.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Locking, table};
///
/// assert_eq!("vp".parse(), Ok(Locking::Vp));
/// assert_eq!(Locking::default(), Locking::Vp);
/// assert!(Locking::ALL.contains(&table().locking()));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Locking {
    /// One lock per kind.
    #[cfg(feature = "lab")]
    Kind,
    /// One lock per resource.
    #[cfg(feature = "lab")]
    Id,
    /// No shared lock: state is partitioned by VP, and resources are claimed.
    #[default]
    Vp,
}

impl Locking {
    /// All designs of this build, from coarse to fine.
    #[cfg(feature = "lab")]
    pub const ALL: [Locking; 3] = [Locking::Kind, Locking::Id, Locking::Vp];
    /// All designs of this build: only `vp` without the feature `lab`.
    #[cfg(not(feature = "lab"))]
    pub const ALL: [Locking; 1] = [Locking::Vp];

    /// Names of the designs that only the feature `lab` provides.
    const OF_LAB: [&'static str; 2] = ["kind", "id"];

    /// Returns the name that [`FromStr`] accepts.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Locking;
    ///
    /// for design in Locking::ALL {
    ///     assert_eq!(design.name().parse(), Ok(design));
    /// }
    /// ```
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

/// Error of parsing a locking design that this build does not have.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::Locking;
///
/// let error = "none".parse::<Locking>().unwrap_err();
/// assert!(error.to_string().starts_with(r#""none" is not a locking design"#));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockingError(String);

impl fmt::Display for LockingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let expected = if cfg!(feature = "lab") { "kind, id or vp" } else { "vp" };
        match Locking::OF_LAB.contains(&self.0.as_str()) {
            true => write!(f, "{:?} needs the feature `lab`: expected {expected}", self.0),
            false => write!(f, "{:?} is not a locking design: expected {expected}", self.0),
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

/// Lock of one resource, for kinds that store it in the resource. Held for one operation. The
/// holder must have events off, so that it keeps its VP.
#[derive(Debug, Default)]
pub struct Claim(AtomicBool);

/// Guard of a held [`Claim`].
#[derive(Debug)]
#[must_use]
pub struct Claimed<'a>(&'a Claim);

impl Claim {
    /// Creates a claim that no thread holds.
    #[must_use]
    pub const fn new() -> Claim {
        Claim(AtomicBool::new(false))
    }

    /// Acquires the claim. Spins while another thread holds it, and yields the core now and then.
    #[inline]
    pub fn take(&self) -> Claimed<'_> {
        // Acquire: orders this thread after the previous holder's changes to the resource.
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
                // The kernel may have preempted the holder's kernel thread, which then needs this
                // core.
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
                    let expected = format!("{name:?} needs the feature `lab`: expected vp");
                    assert!(!cfg!(feature = "lab") && why.to_string() == expected, "{why}");
                }
            }
        }
        let why = "loose".parse::<Locking>().unwrap_err().to_string();
        assert!(why.starts_with("\"loose\" is not a locking design: "), "{why}");
    }
}
