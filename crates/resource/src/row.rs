//! Row of the resource table: one kind of resource, with its procedure for each operation (P3,
//! figure 1).

use std::any::Any;

use crate::id::{Kind, Serial};
use crate::operation::{Error, Operation};

/// Command of [`Operation::Control`].
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Command, table};
/// use kumihimo::thread;
///
/// let worker = thread::spawn(thread::park);
/// let id = worker.thread().id().resource().expect("it is a microprocess");
/// table().control(id, &Command::Priority(50))?;
/// assert_eq!(worker.thread().priority().get(), 50);
/// table().control(id, &Command::Cancel)?;
/// assert!(worker.join().is_err(), "it was cancelled");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Command<'a> {
    /// Suspends the resource's user until it is resumed.
    Suspend,
    /// Resumes a suspended user.
    Resume,
    /// Requests cancellation.
    Cancel,
    /// Sets the priority, 0 to 63.
    Priority(u8),
    /// Command specific to the kind.
    Own(&'a str),
}

/// Line of the usage table (P3, figures 5 and 6).
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Kind, Region, Usage, table};
///
/// let region = Region::new(4096)?;
/// let expected =
///     Usage { serial: region.id().serial(), owner: None, state: "4096 bytes".to_owned() };
/// table().usage(Some(Kind::REGION), &mut |_id, usage| assert_eq!(usage, expected));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Serial of the resource within its kind.
    pub serial: Serial,
    /// User of the resource: kind and serial in the same address space.
    pub owner: Option<(Kind, Serial)>,
    /// State of the resource, in a form that its kind defines.
    pub state: String,
}

/// Row of the table: implements the five operations for resources of one kind, and lists the
/// resources.
///
/// Methods are called only through the [`Table`](crate::table::Table), which has excluded other
/// threads from the resource, or from the kind, as the [`Locking`](crate::locking::Locking) design
/// requires. A row therefore takes no lock of its own for this. A row may call the table for other
/// kinds and for names, but never for its own kind: under locking design `kind` it would deadlock.
/// A panic of a row propagates to the caller and leaves nothing locked. Operations without an
/// implementation return [`Error::Unsupported`].
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Entries, Error, Kind, Name, Row, Serial, Usage, table};
///
/// const GAUGE: Kind = Kind::FIRST_OWN;
/// static GAUGES: Entries<i64> = Entries::new(GAUGE);
///
/// struct Gauges;
///
/// impl Row for Gauges {
///     fn kind(&self) -> Kind {
///         GAUGE
///     }
///     fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
///         let text = GAUGES.with(serial, |value| value.to_string())?;
///         into.extend(text.as_bytes());
///         Ok(text.len())
///     }
///     fn usage(&self, each: &mut dyn FnMut(Usage)) {
///         GAUGES.usage(each, |value| format!("shows {value}"));
///     }
/// }
///
/// table().define(&Gauges)?;
/// let boiler = GAUGES.id(GAUGES.open(80)?);
/// table().name(&Name::new(GAUGE, "boiler")?, boiler)?;
///
/// let mut value = Vec::new();
/// table().read(boiler, &mut value)?;
/// assert_eq!(value, b"80");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Row: Send + Sync {
    /// Returns the kind of the row.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Row, Usage, table};
    ///
    /// struct Nothing;
    /// impl Row for Nothing {
    ///     fn kind(&self) -> Kind {
    ///         Kind::new(20).expect("1 to 31")
    ///     }
    /// #   fn usage(&self, _each: &mut dyn FnMut(Usage)) {}
    /// }
    /// table().define(&Nothing)?;
    /// assert!(table().define(&Nothing).is_err(), "a kind has one row");
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    fn kind(&self) -> Kind;

    /// Creates a resource as `order` specifies; each kind documents the type of its order.
    ///
    /// # Errors
    /// Any [`Error`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use kumihimo::resource::{Entries, Error, Kind, Row, Serial, Usage, table};
    /// use std::any::Any;
    ///
    /// # const WORD: Kind = Kind::FIRST_OWN;
    /// static WORDS: Entries<&'static str> = Entries::new(WORD);
    /// struct Words;
    /// impl Row for Words {
    ///     /// The order is a `&'static str`.
    ///     fn open(&self, order: &mut dyn Any) -> Result<Serial, Error> {
    ///         let word = order.downcast_ref().ok_or_else(|| Error::Invalid("no word".into()))?;
    ///         WORDS.open(*word)
    ///     }
    /// #   fn kind(&self) -> Kind { WORD }
    /// #   fn usage(&self, _each: &mut dyn FnMut(Usage)) {}
    /// }
    /// table().define(&Words)?;
    /// let id = table().open(WORD, &mut "hello")?;
    /// assert_eq!(WORDS.with(id.serial(), |word| *word)?, "hello");
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    fn open(&self, order: &mut dyn Any) -> Result<Serial, Error> {
        let _ = order;
        Err(Error::Unsupported(self.kind(), Operation::Open))
    }

    /// Ends the resource; its serial becomes stale.
    ///
    /// # Errors
    /// Any [`Error`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use kumihimo::resource::{Entries, Error, Kind, Row, Serial, Usage, table};
    /// # const WORD: Kind = Kind::FIRST_OWN;
    /// static WORDS: Entries<&'static str> = Entries::new(WORD);
    /// struct Words;
    /// impl Row for Words {
    ///     fn close(&self, serial: Serial) -> Result<(), Error> {
    ///         WORDS.close(serial).map(drop)
    ///     }
    /// #   fn kind(&self) -> Kind { WORD }
    /// #   fn usage(&self, _each: &mut dyn FnMut(Usage)) {}
    /// }
    /// table().define(&Words)?;
    /// let id = WORDS.id(WORDS.open("hello")?);
    /// table().close(id)?;
    /// assert_eq!(WORDS.living(), 0);
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    fn close(&self, serial: Serial) -> Result<(), Error> {
        let _ = serial;
        Err(Error::Unsupported(self.kind(), Operation::Close))
    }

    /// Appends the content or the state of the resource to `into`. Returns the number of bytes.
    ///
    /// # Errors
    /// Any [`Error`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use kumihimo::resource::{Entries, Error, Kind, Row, Serial, Usage, table};
    /// # const WORD: Kind = Kind::FIRST_OWN;
    /// static WORDS: Entries<&'static str> = Entries::new(WORD);
    /// struct Words;
    /// impl Row for Words {
    ///     fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
    ///         WORDS.with(serial, |word| {
    ///             into.extend(word.as_bytes());
    ///             word.len()
    ///         })
    ///     }
    /// #   fn kind(&self) -> Kind { WORD }
    /// #   fn usage(&self, _each: &mut dyn FnMut(Usage)) {}
    /// }
    /// table().define(&Words)?;
    /// let id = WORDS.id(WORDS.open("hello")?);
    /// assert_eq!(table().read(id, &mut Vec::new())?, 5);
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let _ = (serial, into);
        Err(Error::Unsupported(self.kind(), Operation::Read))
    }

    /// Writes bytes to the resource. Returns the number of bytes accepted.
    ///
    /// # Errors
    /// Any [`Error`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use kumihimo::resource::{Entries, Error, Kind, Row, Serial, Usage, table};
    /// # const NOTE: Kind = Kind::FIRST_OWN;
    /// static NOTES: Entries<Vec<u8>> = Entries::new(NOTE);
    /// struct Notes;
    /// impl Row for Notes {
    ///     fn write(&self, serial: Serial, from: &[u8]) -> Result<usize, Error> {
    ///         NOTES.with(serial, |note| note.extend(from))?;
    ///         Ok(from.len())
    ///     }
    /// #   fn kind(&self) -> Kind { NOTE }
    /// #   fn usage(&self, _each: &mut dyn FnMut(Usage)) {}
    /// }
    /// table().define(&Notes)?;
    /// let id = NOTES.id(NOTES.open(Vec::new())?);
    /// assert_eq!(table().write(id, b"buy milk")?, 8);
    /// assert_eq!(NOTES.with(id.serial(), |note| note.clone())?, b"buy milk");
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    fn write(&self, serial: Serial, from: &[u8]) -> Result<usize, Error> {
        let _ = (serial, from);
        Err(Error::Unsupported(self.kind(), Operation::Write))
    }

    /// Executes a command on the resource.
    ///
    /// # Errors
    /// Any [`Error`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use kumihimo::resource::{Command, Entries, Error, Kind, Row, Serial, Usage, table};
    /// # const COUNTER: Kind = Kind::FIRST_OWN;
    /// static COUNTERS: Entries<u32> = Entries::new(COUNTER);
    /// struct Counters;
    /// impl Row for Counters {
    ///     fn control(&self, serial: Serial, command: &Command<'_>) -> Result<(), Error> {
    ///         match command {
    ///             Command::Own("reset") => COUNTERS.with(serial, |count| *count = 0),
    ///             other => Err(Error::Invalid(format!("a counter does not support {other:?}"))),
    ///         }
    ///     }
    /// #   fn kind(&self) -> Kind { COUNTER }
    /// #   fn usage(&self, _each: &mut dyn FnMut(Usage)) {}
    /// }
    /// table().define(&Counters)?;
    /// let id = COUNTERS.id(COUNTERS.open(7)?);
    /// assert!(table().control(id, &Command::Suspend).is_err());
    /// table().control(id, &Command::Own("reset"))?;
    /// assert_eq!(COUNTERS.with(id.serial(), |count| *count)?, 0);
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    fn control(&self, serial: Serial, command: &Command<'_>) -> Result<(), Error> {
        let _ = (serial, command);
        Err(Error::Unsupported(self.kind(), Operation::Control))
    }

    /// Calls `each` for each resource of the kind. Not a snapshot: resources may open and close
    /// meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// # use kumihimo::resource::{Entries, Kind, Row, Usage, table};
    /// # const WORD: Kind = Kind::FIRST_OWN;
    /// static WORDS: Entries<&'static str> = Entries::new(WORD);
    /// struct Words;
    /// impl Row for Words {
    ///     fn usage(&self, each: &mut dyn FnMut(Usage)) {
    ///         WORDS.usage(each, |word| format!("holds {word}"));
    ///     }
    /// #   fn kind(&self) -> Kind { WORD }
    /// }
    /// table().define(&Words)?;
    /// WORDS.open("hello")?;
    /// table().usage(Some(WORD), &mut |_id, usage| assert_eq!(usage.state, "holds hello"));
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    fn usage(&self, each: &mut dyn FnMut(Usage));
}
