//! The priority scale: 0 (lowest) to 63 (highest).

use std::fmt;

/// A priority between 0 (lowest) and 63 (highest). All microprocesses of the machine share this
/// scale.
///
/// # Examples
///
/// ```
/// use kumihimo::thread::{self, Priority};
///
/// let urgent = Priority::new(50)?;
/// assert!(urgent > Priority::DEFAULT);
/// let handle = thread::Builder::new().priority(urgent).spawn(thread::current_priority)?;
/// assert_eq!(handle.join().unwrap(), urgent);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Priority(u8);

impl Priority {
    /// The number of levels: 64.
    pub const LEVELS: usize = 64;
    /// 0: runs when nothing else is runnable.
    pub const LOWEST: Priority = Priority(0);
    /// 32: the default of a microprocess, and the priority that plain std threads count as.
    pub const DEFAULT: Priority = Priority(32);
    /// 63: the highest priority.
    pub const HIGHEST: Priority = Priority(63);

    /// Returns the priority `level`.
    ///
    /// # Errors
    /// [`PriorityError`] if `level` is above 63.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::Priority;
    ///
    /// assert!(Priority::new(40)? > Priority::DEFAULT);
    /// assert!(Priority::new(64).is_err());
    /// # Ok::<(), kumihimo::thread::PriorityError>(())
    /// ```
    pub const fn new(level: u8) -> Result<Priority, PriorityError> {
        if level <= Priority::HIGHEST.0 { Ok(Priority(level)) } else { Err(PriorityError(level)) }
    }

    /// Returns the level, 0..=63.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::thread::Priority;
    ///
    /// assert_eq!(Priority::DEFAULT.get(), 32);
    /// assert_eq!(usize::from(Priority::HIGHEST.get()) + 1, Priority::LEVELS);
    /// ```
    pub const fn get(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Priority {
        Priority::DEFAULT
    }
}

impl TryFrom<u8> for Priority {
    type Error = PriorityError;
    fn try_from(level: u8) -> Result<Priority, PriorityError> {
        Priority::new(level)
    }
}

impl From<Priority> for u8 {
    fn from(p: Priority) -> u8 {
        p.0
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Priority({})", self.0)
    }
}

/// The error for a level above 63.
///
/// # Examples
///
/// ```
/// use kumihimo::thread::{Priority, PriorityError};
/// use std::io;
///
/// let error: PriorityError = Priority::new(99).unwrap_err();
/// assert_eq!(error.to_string(), "priority 99 is out of range: 0 (lowest) to 63 (highest)");
/// assert_eq!(io::Error::from(error).kind(), io::ErrorKind::InvalidInput);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PriorityError(u8);

impl fmt::Display for PriorityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "priority {} is out of range: 0 (lowest) to 63 (highest)", self.0)
    }
}

impl std::error::Error for PriorityError {}

impl From<PriorityError> for std::io::Error {
    fn from(e: PriorityError) -> std::io::Error {
        std::io::Error::new(std::io::ErrorKind::InvalidInput, e)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_64_levels_exist() {
        assert_eq!((0..=u8::MAX).filter(|&l| Priority::new(l).is_ok()).count(), Priority::LEVELS);
        assert!(Priority::LOWEST < Priority::DEFAULT && Priority::DEFAULT < Priority::HIGHEST);
        assert_eq!(Priority::default().get(), 32);
        assert_eq!(u8::from(Priority::HIGHEST), 63);
    }

    #[test]
    fn out_of_range_is_named() {
        let e = Priority::try_from(200).unwrap_err();
        assert!(e.to_string().contains("200"), "{e}");
        assert_eq!(std::io::Error::from(e).kind(), std::io::ErrorKind::InvalidInput);
    }

    #[test]
    fn display_pads_like_a_number() {
        assert_eq!(
            format!("{:>4}|{:?}", Priority::DEFAULT, Priority::DEFAULT),
            "  32|Priority(32)"
        );
    }
}
