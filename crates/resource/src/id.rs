//! Id of a resource: 64 bits, unique on the machine.
//!
//! ```text
//!  63  62-61     60-49       48-44     43-23   22-0
//!  0 | machine | space     | kind    | slot  | generation
//!      \__ location ____/            \___ serial ____/
//! ```
//! *Location* is the machine and the address space that issued the id. A *slot* is a place in that
//! address space's table of the kind. The slot's *generation* increases whenever the resource in it
//! ends, so an id never refers to a later resource. [`crate::serials`] guarantees this even beyond
//! the end of the process. The top bit marks kernel threads that are no resource.
//!
//! Ids print as `SPACE.KIND.SLOT.GENERATION`, for example `12.microprocess.42.7`. On any machine
//! but 0, `MACHINE/` precedes them.

mod kind;

use std::fmt;
use std::num::NonZero;
use std::str::FromStr;

pub use kind::Kind;

pub(crate) const GENERATION_BITS: u32 = 23;
pub(crate) const SLOT_BITS: u32 = 21;
const KIND_BITS: u32 = 5;
const SPACE_BITS: u32 = 12;
const MACHINE_BITS: u32 = 2;

const SERIAL_BITS: u32 = GENERATION_BITS + SLOT_BITS;
const SPACE_SHIFT: u32 = SERIAL_BITS + KIND_BITS;
const MACHINE_SHIFT: u32 = SPACE_SHIFT + SPACE_BITS;
const _: () = assert!(MACHINE_SHIFT + MACHINE_BITS == 63);

const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Number of slots of a kind in one address space.
pub const SLOTS: u32 = 1 << SLOT_BITS;
/// Number of generations of a slot.
pub const GENERATIONS: u32 = 1 << GENERATION_BITS;
/// Upper bound of kind numbers.
pub const KINDS: usize = 1 << KIND_BITS;
/// Upper bound of address space numbers; 0 means that the address space has no number.
pub const SPACES: u16 = 1 << SPACE_BITS;

/// Slot and generation: identifies a resource of one kind within its address space.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::Serial;
///
/// let serial = Serial::new(42, 7);
/// assert_eq!((serial.slot(), serial.generation()), (42, 7));
/// assert_eq!(serial.to_string(), "42.7");
/// assert!(serial < Serial::new(42, 8));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Serial(u64);

impl Serial {
    /// Returns the serial of generation `generation` of slot `slot`.
    ///
    /// # Panics
    /// If an argument is out of range.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Serial;
    ///
    /// assert_eq!(Serial::new(3, 0).to_string(), "3.0");
    /// assert_ne!(Serial::new(3, 0), Serial::new(3, 1), "a later resource in the same slot");
    /// ```
    #[must_use]
    pub const fn new(slot: u32, generation: u32) -> Serial {
        assert!(slot < SLOTS && generation < GENERATIONS);
        Serial((slot as u64) << GENERATION_BITS | generation as u64)
    }

    /// Returns the serial in the low 44 bits of `bits`; higher bits are ignored.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Id, Serial};
    ///
    /// let id: Id = "12.vp.1.0".parse()?;
    /// assert_eq!(Serial::from_bits(id.bits().get()), id.serial());
    /// # Ok::<(), kumihimo::resource::IdError>(())
    /// ```
    #[must_use]
    pub const fn from_bits(bits: u64) -> Serial {
        Serial(bits & low(SERIAL_BITS))
    }

    /// Returns the serial as 44 bits.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Serial;
    ///
    /// let serial = Serial::new(42, 7);
    /// assert_eq!(serial.bits(), 42 << 23 | 7);
    /// assert_eq!(Serial::from_bits(serial.bits()), serial);
    /// ```
    #[must_use]
    #[inline]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// Returns the slot in the table.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Serial;
    ///
    /// assert_eq!(Serial::new(42, 7).slot(), 42);
    /// ```
    #[must_use]
    #[inline]
    pub const fn slot(self) -> u32 {
        (self.0 >> GENERATION_BITS) as u32
    }

    /// Returns the generation of the slot.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Serial;
    ///
    /// assert_eq!(Serial::new(42, 7).generation(), 7);
    /// ```
    #[must_use]
    #[inline]
    pub const fn generation(self) -> u32 {
        (self.0 & low(GENERATION_BITS)) as u32
    }
}

impl fmt::Display for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot(), self.generation())
    }
}

impl fmt::Debug for Serial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Origin of ids: a machine and an address space on it. Address space 0 stands for an address space
/// without a number, which other processes cannot find.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::Id;
///
/// let id: Id = "12.vp.1.0".parse()?;
/// assert_eq!((id.location().machine(), id.location().space()), (0, 12));
/// # Ok::<(), kumihimo::resource::IdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Location {
    /// Number of the machine, 0 to 3.
    machine: u8,
    space: u16,
}

impl Location {
    /// Location of an address space without a number.
    pub const NOWHERE: Location = Location { machine: 0, space: 0 };

    /// Returns the location of address space `space` on this machine, if the number is in range.
    #[must_use]
    pub const fn new(space: u16) -> Option<Location> {
        if space < SPACES { Some(Location { machine: 0, space }) } else { None }
    }

    /// Returns the machine's number.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Id;
    ///
    /// let id: Id = "3/12.vp.1.0".parse()?;
    /// assert_eq!(id.location().machine(), 3);
    /// # Ok::<(), kumihimo::resource::IdError>(())
    /// ```
    #[must_use]
    pub const fn machine(self) -> u8 {
        self.machine
    }

    /// Returns the address space's number on its machine.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::machine;
    /// use kumihimo::resource::table;
    ///
    /// let space = table().location().space();
    /// assert_eq!(space, machine::number().unwrap_or(0));
    /// ```
    #[must_use]
    pub const fn space(self) -> u16 {
        self.space
    }
}

/// Id of a resource. The module documentation describes its layout.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Id, Kind};
///
/// let id: Id = "12.microprocess.42.7".parse()?;
/// assert_eq!(id.location().space(), 12);
/// assert_eq!(id.kind(), Kind::MICROPROCESS);
/// assert_eq!((id.serial().slot(), id.serial().generation()), (42, 7));
/// assert_eq!("12.42.7".parse::<Id>()?, id, "the short form for microprocesses");
/// # Ok::<(), kumihimo::resource::IdError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id(NonZero<u64>);

impl Id {
    /// Builds an id from its parts.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Id, Kind, Serial, table};
    ///
    /// let id = Id::new(table().location(), Kind::REGION, Serial::new(3, 0));
    /// assert_eq!(id, table().id(Kind::REGION, Serial::new(3, 0)));
    /// ```
    #[must_use]
    #[inline]
    pub const fn new(location: Location, kind: Kind, serial: Serial) -> Id {
        let bits = (location.machine as u64) << MACHINE_SHIFT
            | (location.space as u64) << SPACE_SHIFT
            | (kind.0 as u64) << SERIAL_BITS
            | serial.0;
        match NonZero::new(bits) {
            Some(bits) => Id(bits),
            None => unreachable!(),
        }
    }

    /// Returns the id with these bits, or `None` if they form no valid id.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Id;
    ///
    /// let id: Id = "12.42.7".parse()?;
    /// assert_eq!(Id::from_bits(id.bits().get()), Some(id));
    /// assert_eq!(Id::from_bits(0), None);
    /// # Ok::<(), kumihimo::resource::IdError>(())
    /// ```
    #[must_use]
    pub const fn from_bits(bits: u64) -> Option<Id> {
        let kind = bits >> SERIAL_BITS & low(KIND_BITS);
        match NonZero::new(bits) {
            Some(all) if kind != 0 && bits >> 63 == 0 => Some(Id(all)),
            _ => None,
        }
    }

    /// Returns the id as 64 bits.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Region;
    ///
    /// // Eight bytes, for a packet or a log.
    /// let region = Region::new(4096)?;
    /// let bytes = region.id().bits().get().to_be_bytes();
    /// assert_eq!(bytes.len(), 8);
    /// assert_eq!(bytes[0] >> 7, 0, "the top bit marks kernel threads");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    #[inline]
    pub const fn bits(self) -> NonZero<u64> {
        self.0
    }

    /// Returns the machine and address space.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::Id;
    ///
    /// let (one, other): (Id, Id) = ("12.vp.0.0".parse()?, "12.vp.1.0".parse()?);
    /// assert_eq!(one.location(), other.location(), "in the same address space");
    /// # Ok::<(), kumihimo::resource::IdError>(())
    /// ```
    #[must_use]
    pub const fn location(self) -> Location {
        let bits = self.0.get();
        Location {
            machine: (bits >> MACHINE_SHIFT & low(MACHINE_BITS)) as u8,
            space: (bits >> SPACE_SHIFT & low(SPACE_BITS)) as u16,
        }
    }

    /// Returns the kind of resource.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Id, Kind};
    ///
    /// let id: Id = "12.socket.5.1".parse()?;
    /// assert_eq!(id.kind(), Kind::SOCKET);
    /// # Ok::<(), kumihimo::resource::IdError>(())
    /// ```
    #[must_use]
    pub const fn kind(self) -> Kind {
        Kind((self.0.get() >> SERIAL_BITS & low(KIND_BITS)) as u8)
    }

    /// Returns the slot and generation.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Id, Serial};
    ///
    /// let id: Id = "12.socket.5.1".parse()?;
    /// assert_eq!(id.serial(), Serial::new(5, 1));
    /// # Ok::<(), kumihimo::resource::IdError>(())
    /// ```
    #[must_use]
    pub const fn serial(self) -> Serial {
        Serial::from_bits(self.0.get())
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Location { machine, space } = self.location();
        let (kind, serial) = (self.kind(), self.serial());
        // Signal handlers print ids, so nothing is allocated unless a width is given.
        match (f.width(), machine) {
            (None, 0) => write!(f, "{space}.{kind}.{serial}"),
            (None, _) => write!(f, "{machine}/{space}.{kind}.{serial}"),
            (Some(_), 0) => f.pad(&format!("{space}.{kind}.{serial}")),
            (Some(_), _) => f.pad(&format!("{machine}/{space}.{kind}.{serial}")),
        }
    }
}

impl fmt::Debug for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Formats 64 bits as an id, or as a kernel thread that is no microprocess (top bit set). Prints
/// other values in hexadecimal. Allocates nothing.
#[derive(Clone, Copy, Debug)]
pub struct Printed(pub u64);

impl fmt::Display for Printed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Id::from_bits(self.0) {
            Some(id) => id.fmt(f),
            None if self.0 >> 63 == 0 => write!(f, "{:x}", self.0),
            None => write!(f, "kernel-thread.{}", self.0 & (u64::MAX >> 1)),
        }
    }
}

/// Error of parsing an id or a kind. The message names the wrong part.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::Id;
///
/// let error = "12.fiber.42.7".parse::<Id>().unwrap_err();
/// assert!(error.to_string().contains("(its kind)"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdError(String);

impl fmt::Display for IdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for IdError {}

/// Parses a number exactly as `Display` prints it, without sign and leading zeros. Thus no two
/// texts parse as the same id.
fn decimal<T: FromStr + fmt::Display>(text: &str) -> Option<T> {
    text.parse().ok().filter(|n: &T| n.to_string() == text)
}

impl FromStr for Id {
    type Err = IdError;

    /// Parses an id as printed. The kind may be omitted if it is `microprocess`: `12.42.7`.
    fn from_str(text: &str) -> Result<Id, IdError> {
        let wrong = |what: &str| {
            IdError(format!(
                "{text:?} is not an id ({what}): expected SPACE.KIND.SLOT.GENERATION, as in 12.microprocess.42.7"
            ))
        };
        let (machine, rest) = match text.split_once('/') {
            Some((machine, rest)) => {
                let machine = decimal::<u8>(machine).filter(|m| (1..1 << MACHINE_BITS).contains(m));
                (machine.ok_or_else(|| wrong("its machine"))?, rest)
            }
            None => (0, text),
        };
        let mut parts: Vec<&str> = rest.split('.').collect();
        if parts.len() == 3 {
            parts.insert(1, "microprocess");
        }
        let [space, kind, slot, generation] = parts[..] else {
            return Err(wrong("the number of its parts"));
        };
        let space =
            decimal(space).filter(|n| *n < SPACES).ok_or_else(|| wrong("its address space"))?;
        let kind = kind.parse().map_err(|_| wrong("its kind"))?;
        let slot = decimal(slot).filter(|n| *n < SLOTS).ok_or_else(|| wrong("its slot"))?;
        let generation = decimal(generation)
            .filter(|n| *n < GENERATIONS)
            .ok_or_else(|| wrong("its generation"))?;
        Ok(Id::new(Location { machine, space }, kind, Serial::new(slot, generation)))
    }
}

/// Serialises the id as its printed form.
impl serde::Serialize for Id {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Id {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Id, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests;
