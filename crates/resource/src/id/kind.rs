//! Kind of a resource: the middle part of its id.

use std::fmt;
use std::str::FromStr;

use super::{IdError, KINDS};

/// Kind of resource: a row of the table.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Kind, Region};
///
/// let region = Region::new(4096)?;
/// assert_eq!(region.id().kind(), Kind::REGION);
/// assert_eq!(Kind::REGION.to_string(), "region");
/// assert_eq!("mailbox".parse::<Kind>()?, Kind::MAILBOX);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Kind(pub(super) u8);

/// The numbers are part of every id and must never change.
impl Kind {
    /// Process that uses the runtime.
    pub const SPACE: Kind = Kind(1);
    /// User-level thread.
    pub const MICROPROCESS: Kind = Kind(2);
    /// Part of a microprocess: its stack and TLS block.
    pub const STACK: Kind = Kind(3);
    /// Part of a microprocess: its share of the processor, that is, its priority and the level that
    /// the policy derives from it.
    pub const SHARE: Kind = Kind(4);
    /// Virtual processor.
    pub const VP: Kind = Kind(5);
    /// Timer that wakes a microprocess.
    pub const TIMER: Kind = Kind(6);
    /// Memory region.
    pub const REGION: Kind = Kind(7);
    /// Queue of synchronous messages.
    pub const MAILBOX: Kind = Kind(8);
    /// Open file.
    pub const FILE: Kind = Kind(9);
    /// Socket.
    pub const SOCKET: Kind = Kind(10);
    /// Entry point for calls from other address spaces.
    pub const GATE: Kind = Kind(11);
    /// Connection of this address space with a caller or a callee in another address space.
    pub const LINK: Kind = Kind(12);
    /// First kind that applications may define.
    pub const FIRST_OWN: Kind = Kind(16);

    /// Names of the built-in kinds, by number; empty for unused numbers.
    const NAMES: [&str; 13] = [
        "",
        "space",
        "microprocess",
        "stack",
        "share",
        "vp",
        "timer",
        "region",
        "mailbox",
        "file",
        "socket",
        "gate",
        "link",
    ];

    /// Returns kind number `n`, which must be 1 to 31.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Kind;
    ///
    /// const GAUGE: Kind = Kind::new(17).expect("1 to 31");
    /// assert_eq!(GAUGE.to_string(), "kind17");
    /// assert_eq!(Kind::new(32), None);
    /// ```
    #[must_use]
    pub const fn new(n: u8) -> Option<Kind> {
        if n == 0 || n as usize >= KINDS { None } else { Some(Kind(n)) }
    }

    /// Returns the kind's number.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Kind;
    ///
    /// assert_eq!(Kind::MICROPROCESS.number(), 2);
    /// assert_eq!(Kind::FIRST_OWN.number(), 16);
    /// ```
    #[must_use]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// Returns the index of the kind's row in the table.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Kind;
    ///
    /// let mut counts = [0; 32];
    /// counts[Kind::VP.row()] += 1;
    /// assert_eq!(counts[5], 1);
    /// ```
    #[must_use]
    pub const fn row(self) -> usize {
        self.0 as usize
    }

    /// Returns whether an application defined the kind.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Kind;
    ///
    /// assert!(Kind::FIRST_OWN.is_own());
    /// assert!(!Kind::SOCKET.is_own());
    /// ```
    #[must_use]
    pub const fn is_own(self) -> bool {
        self.0 >= Kind::FIRST_OWN.0
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Kind::NAMES.get(self.row()) {
            Some(name) => f.pad(name),
            None if f.width().is_some() => f.pad(&format!("kind{}", self.0)),
            None => write!(f, "kind{}", self.0),
        }
    }
}

impl fmt::Debug for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Kind {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Kind, IdError> {
        let all = (1..KINDS as u8).filter_map(Kind::new);
        all.into_iter()
            .find(|kind| kind.to_string() == text)
            .ok_or_else(|| IdError(format!("{text:?} is not a kind of resource")))
    }
}
