//! Resource table: its rows are kinds, its columns the five operations (P3, figure 1: "table
//! program structure"). All locking takes place here.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::id::{Id, KINDS, Kind, Location, Serial};
use crate::locking::{Claim, Claimed, Locking};
use crate::names::{Name, NameError, Names};
use crate::serials::Generations;

/// Operation on a resource: a column of the table.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Error, Kind, Operation, Region, table};
///
/// let region = Region::new(4096)?;
/// let error = table().write(region.id(), b"text").unwrap_err();
/// assert!(matches!(error, Error::Unsupported(Kind::REGION, Operation::Write)));
/// assert_eq!(error.to_string(), "kind region does not support operation write");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Creates a resource, or finds an available one.
    Open,
    /// Ends a resource.
    Close,
    /// Reads the content or the state of a resource.
    Read,
    /// Writes to a resource.
    Write,
    /// Any other action on a resource.
    Control,
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Operation::Open => "open",
            Operation::Close => "close",
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Control => "control",
        })
    }
}

/// Error of an operation on a resource.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Error, Region, table};
///
/// let region = Region::new(4096)?;
/// let id = region.id();
/// drop(region);
/// assert!(matches!(table().read(id, &mut Vec::new()), Err(Error::Stale(stale)) if stale == id));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The kind does not support the operation.
    Unsupported(Kind, Operation),
    /// This address space does not have the kind.
    NoKind(Kind),
    /// The id belongs to another address space.
    Elsewhere(Id),
    /// The resource has ended, or never existed.
    Stale(Id),
    /// All slots of the kind are in use.
    Full(Kind),
    /// The request is invalid. Holds the reason.
    Invalid(String),
    /// Error of the name tree.
    Name(NameError),
    /// Error of the operating system.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unsupported(kind, operation) => {
                write!(f, "kind {kind} does not support operation {operation}")
            }
            Error::NoKind(kind) => write!(f, "this address space has no resources of kind {kind}"),
            Error::Elsewhere(id) => {
                write!(
                    f,
                    "{id} is in another address space: send the request there (kumihimo::machine, kumi)"
                )
            }
            Error::Stale(id) => write!(f, "{id} has ended, or never existed"),
            Error::Full(kind) => {
                write!(f, "all {} slots of kind {kind} are in use: end some", crate::id::SLOTS)
            }
            Error::Invalid(why) => f.write_str(why),
            Error::Name(e) => e.fmt(f),
            Error::Io(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Name(e) => Some(e),
            Error::Io(e) => Some(e),
            _ => None,
        }
    }
}

impl From<NameError> for Error {
    fn from(e: NameError) -> Error {
        Error::Name(e)
    }
}

impl From<io::Error> for Error {
    fn from(e: io::Error) -> Error {
        Error::Io(e)
    }
}

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
/// Methods are called only through the [`Table`], which has excluded other threads from the
/// resource, or from the kind, as the [`Locking`] design requires. A row therefore takes no lock of
/// its own for this. A row may call the table for other kinds and for names, but never for its own
/// kind: under locking design `kind` it would deadlock. A panic of a row propagates to the caller
/// and leaves nothing locked. Operations without an implementation return [`Error::Unsupported`].
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

/// Resource table of an address space.
///
/// The table itself blocks no caller, except with locking design `kind`. There an operation blocks
/// the kernel thread while another thread executes an operation on the same kind.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Kind, Name, Region, table};
///
/// let region = Region::new(4096)?;
/// table().name(&Name::new(Kind::REGION, "frame")?, region.id())?;
///
/// let found = table().names().find(&Name::parse("/region/frame")?)?;
/// let mut state = Vec::new();
/// table().read(found, &mut state)?;
/// assert_eq!(state, b"4096 bytes");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Table {
    location: Location,
    generations: Generations,
    locking: Locking,
    rows: [OnceLock<&'static dyn Row>; KINDS],
    /// Locks of design `kind`: held by the thread that executes an operation on the kind.
    kinds: [Mutex<()>; KINDS],
    names: Names,
    /// Kinds of which some resource has a name: only for these does the end of a resource search
    /// the name tree.
    named: [AtomicBool; KINDS],
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("location", &self.location)
            .field("locking", &self.locking)
            .finish_non_exhaustive()
    }
}

/// Lock held during one operation.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Held<'a> {
    Kind(MutexGuard<'a, ()>),
    Own(Claimed<'a>),
    Nothing,
}

static TABLE: OnceLock<Table> = OnceLock::new();

/// Whether the table of this address space has one lock per kind. A separate flag, because every
/// operation reads it. Relaxed: it is set before the first resource exists.
static WHOLE_KINDS: AtomicBool = AtomicBool::new(false);

/// Returns whether the table of this address space has one lock per kind.
#[inline(always)]
#[must_use]
pub fn has_whole_kinds() -> bool {
    cfg!(feature = "lab") && WHOLE_KINDS.load(Ordering::Relaxed)
}

/// Returns the table of this address space. The first call creates a table whose resources other
/// processes cannot find, unless [`begin`] was called before.
#[inline]
pub fn table() -> &'static Table {
    TABLE
        .get_or_init(|| Table::new(Location::NOWHERE, Generations::unclaimed(), Locking::default()))
}

/// Creates the table of this address space.
///
/// # Errors
/// Returns the existing table if there is one.
pub fn begin(
    location: Location,
    generations: Generations,
    locking: Locking,
) -> Result<&'static Table, &'static Table> {
    let mut mine = Some((location, generations));
    let table = TABLE.get_or_init(|| {
        let (location, generations) = mine.take().expect("called once");
        WHOLE_KINDS.store(locking.is_by_kind(), Ordering::Relaxed);
        Table::new(location, generations, locking)
    });
    if mine.is_none() { Ok(table) } else { Err(table) }
}

impl Table {
    /// Creates an empty table.
    #[must_use]
    pub fn new(location: Location, generations: Generations, locking: Locking) -> Table {
        Table {
            location,
            generations,
            locking,
            rows: [const { OnceLock::new() }; KINDS],
            kinds: [const { Mutex::new(()) }; KINDS],
            names: Names::new(locking),
            named: [const { AtomicBool::new(false) }; KINDS],
        }
    }

    /// Returns the location of the table's ids.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Region, table};
    ///
    /// let region = Region::new(4096)?;
    /// assert_eq!(region.id().location(), table().location());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn location(&self) -> Location {
        self.location
    }

    /// Returns the generations that the table's slots may use.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Slots, table};
    ///
    /// let numbers = Slots::new();
    /// let serial = numbers.open(table().locking(), table().generations(), 0, 7).expect("room");
    /// assert_eq!(numbers.with(serial, |n| *n), Ok(7));
    /// ```
    #[inline]
    #[must_use]
    pub fn generations(&self) -> &Generations {
        &self.generations
    }

    /// Returns the locking design.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Locking, table};
    ///
    /// assert!(Locking::ALL.contains(&table().locking()));
    /// ```
    #[inline]
    #[must_use]
    pub fn locking(&self) -> Locking {
        self.locking
    }

    /// Returns the id of a resource of this address space.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Serial, table};
    ///
    /// let id = table().id(Kind::VP, Serial::new(1, 0));
    /// assert_eq!((id.location(), id.kind()), (table().location(), Kind::VP));
    /// ```
    #[must_use]
    pub fn id(&self, kind: Kind, serial: Serial) -> Id {
        Id::new(self.location, kind, serial)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the kind already has a row.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Entries, Kind, Row, Usage, table};
    ///
    /// const JOB: Kind = Kind::FIRST_OWN;
    /// static JOBS: Entries<&'static str> = Entries::new(JOB);
    /// struct Jobs;
    /// impl Row for Jobs {
    ///     fn kind(&self) -> Kind {
    ///         JOB
    ///     }
    ///     fn usage(&self, each: &mut dyn FnMut(Usage)) {
    ///         JOBS.usage(each, |job| (*job).to_owned());
    ///     }
    /// }
    ///
    /// table().define(&Jobs)?;
    /// JOBS.open("print page 7")?;
    /// let mut jobs = Vec::new();
    /// table().usage(Some(JOB), &mut |_id, usage| jobs.push(usage.state));
    /// assert_eq!(jobs, ["print page 7"]);
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    pub fn define(&self, row: &'static dyn Row) -> Result<(), Error> {
        let kind = row.kind();
        self.rows[kind.row()].set(row).map_err(|_| {
            Error::Invalid(format!(
                "kind {kind} already has a row: choose another number, {} to {}",
                Kind::FIRST_OWN.number(),
                KINDS - 1
            ))
        })
    }

    fn row(&self, kind: Kind) -> Result<&'static dyn Row, Error> {
        self.rows[kind.row()].get().copied().ok_or(Error::NoKind(kind))
    }

    fn here(&self, id: Id) -> Result<&'static dyn Row, Error> {
        if id.location() != self.location {
            return Err(Error::Elsewhere(id));
        }
        self.row(id.kind())
    }

    /// Takes the kind's lock, if the design has one. Code that calls a procedure of a kind
    /// directly, rather than through the table's five operations, holds this guard during the call.
    /// Blocks the kernel thread while another thread holds the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Locking, table};
    ///
    /// let guard = table().enter(Kind::REGION);
    /// // Locking design `vp` has no such lock.
    /// assert_eq!(guard.is_none(), table().locking() == Locking::Vp);
    /// ```
    #[inline]
    #[must_use]
    pub fn enter(&self, kind: Kind) -> Option<MutexGuard<'_, ()>> {
        if self.locking.is_by_kind() { Some(self.enter_kind(kind)) } else { None }
    }

    /// Takes the lock for an operation of the thread that already has exclusive use of the
    /// resource, such as its carrier. Under design `vp` no lock is needed; `id` takes the
    /// resource's lock all the same.
    #[cfg_attr(not(feature = "lab"), expect(unused_variables, reason = "`vp` takes no lock"))]
    #[inline]
    #[must_use]
    pub fn enter_own<'a>(&'a self, kind: Kind, claim: &'a Claim) -> Held<'a> {
        match self.locking {
            #[cfg(feature = "lab")]
            Locking::Kind => Held::Kind(self.enter_kind(kind)),
            #[cfg(feature = "lab")]
            Locking::Id => Held::Own(claim.take()),
            Locking::Vp => Held::Nothing,
        }
    }

    #[cold]
    fn enter_kind(&self, kind: Kind) -> MutexGuard<'_, ()> {
        self.kinds[kind.row()].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a resource.
    ///
    /// # Errors
    /// [`Error::NoKind`], and the errors of the kind.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Begin, Kind, table};
    /// use std::sync::mpsc;
    ///
    /// let (sender, result) = mpsc::channel();
    /// let run: Box<dyn FnOnce() + Send> = Box::new(move || sender.send(6 * 7).unwrap());
    /// let id = table().open(Kind::MICROPROCESS, &mut Begin { builder: None, run: Some(run) })?;
    /// assert_eq!(id.kind(), Kind::MICROPROCESS);
    /// assert_eq!(result.recv()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn open(&self, kind: Kind, order: &mut dyn Any) -> Result<Id, Error> {
        let row = self.row(kind)?;
        let _held = self.enter(kind);
        Ok(self.id(kind, row.open(order)?))
    }

    /// Ends a resource and removes its names.
    ///
    /// # Errors
    /// [`Error::Elsewhere`], [`Error::NoKind`], [`Error::Stale`], and the errors of the kind.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::table;
    /// use kumihimo::thread;
    ///
    /// // Closing a microprocess cancels it.
    /// let worker = thread::spawn(thread::park);
    /// let id = worker.thread().id().resource().expect("it is a microprocess");
    /// table().close(id)?;
    /// assert!(worker.join().is_err());
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    pub fn close(&self, id: Id) -> Result<(), Error> {
        let row = self.here(id)?;
        let closed = {
            let _held = self.enter(id.kind());
            row.close(id.serial())
        };
        closed.inspect(|()| self.ended(id))
    }

    /// Appends the content or the state of a resource to `into`. Returns the number of bytes.
    ///
    /// # Errors
    /// As [`close`](Table::close).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UdpSocket;
    /// use kumihimo::resource::table;
    ///
    /// let socket = UdpSocket::bind("127.0.0.1:0")?;
    /// let id = socket.resource().expect("the table has room");
    /// socket.send_to(b"from another socket", socket.local_addr()?)?;
    /// // Reading a socket receives from it.
    /// let mut content = Vec::new();
    /// table().read(id, &mut content)?;
    /// assert_eq!(content, b"from another socket");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read(&self, id: Id, into: &mut Vec<u8>) -> Result<usize, Error> {
        let row = self.here(id)?;
        let _held = self.enter(id.kind());
        row.read(id.serial(), into)
    }

    /// Writes bytes to a resource. Returns the number of bytes accepted.
    ///
    /// # Errors
    /// As [`close`](Table::close).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::net::UnixStream;
    /// use kumihimo::resource::table;
    /// use std::io::Read;
    ///
    /// let (one, mut other) = UnixStream::pair()?;
    /// let id = one.resource().expect("the table has room");
    /// assert_eq!(table().write(id, b"by its id")?, 9);
    /// let mut text = [0; 9];
    /// other.read_exact(&mut text)?;
    /// assert_eq!(&text, b"by its id");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write(&self, id: Id, from: &[u8]) -> Result<usize, Error> {
        let row = self.here(id)?;
        let _held = self.enter(id.kind());
        row.write(id.serial(), from)
    }

    /// Executes a command on a resource.
    ///
    /// # Errors
    /// As [`close`](Table::close).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Command, table};
    /// use kumihimo::thread;
    ///
    /// let worker = thread::spawn(thread::park);
    /// let id = worker.thread().id().resource().expect("it is a microprocess");
    /// table().control(id, &Command::Priority(12))?;
    /// assert_eq!(worker.thread().priority().get(), 12);
    /// worker.thread().unpark();
    /// worker.join().unwrap();
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    pub fn control(&self, id: Id, command: &Command<'_>) -> Result<(), Error> {
        let row = self.here(id)?;
        let _held = self.enter(id.kind());
        row.control(id.serial(), command)
    }

    /// Visits the usage table of one kind or of all kinds. Not a snapshot: resources may open and
    /// close meanwhile.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Region, table};
    ///
    /// let regions = [Region::new(4096)?, Region::new(8192)?];
    /// let mut states = Vec::new();
    /// table().usage(Some(Kind::REGION), &mut |id, usage| {
    ///     assert!(regions.iter().any(|region| region.id() == id));
    ///     states.push(usage.state);
    /// });
    /// states.sort();
    /// assert_eq!(states, ["4096 bytes", "8192 bytes"]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn usage(&self, kind: Option<Kind>, each: &mut dyn FnMut(Id, Usage)) {
        for row in self
            .rows
            .iter()
            .filter_map(OnceLock::get)
            .filter(|row| kind.is_none_or(|k| k == row.kind()))
        {
            row.usage(&mut |usage| each(self.id(row.kind(), usage.serial), usage));
        }
    }

    /// Returns the name tree, for lookups. Names are given by [`name`](Table::name).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, table};
    ///
    /// assert!(table().names().list(Some(Kind::REGION)).is_empty(), "no region has a name");
    /// ```
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Gives a resource a name. The caller guarantees that the resource exists.
    ///
    /// # Errors
    /// [`Error::Elsewhere`], [`Error::NoKind`], and the errors of the name tree.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Name, Region, table};
    ///
    /// let (region, name) = (Region::new(4096)?, Name::parse("/region/frame")?);
    /// table().name(&name, region.id())?;
    /// assert_eq!(table().names().find(&name)?, region.id());
    /// drop(region);
    /// assert!(table().names().find(&name).is_err(), "names end with their resource");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn name(&self, name: &Name, id: Id) -> Result<(), Error> {
        self.here(id)?;
        self.named[id.kind().row()].store(true, Ordering::Relaxed);
        Ok(self.names.link(name, id)?)
    }

    /// Removes the names of a resource that has ended.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Name, Region, table};
    ///
    /// // `Entries::close` calls it. A kind that stores its resources elsewhere calls it itself.
    /// let (region, name) = (Region::new(4096)?, Name::parse("/region/frame")?);
    /// table().name(&name, region.id())?;
    /// table().ended(region.id());
    /// assert!(table().names().find(&name).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn ended(&self, id: Id) {
        if self.named[id.kind().row()].load(Ordering::Relaxed) {
            self.names.forget(id);
        }
    }

    /// Returns whether resources of the kind may have names.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Name, Region, table};
    ///
    /// assert!(!table().has_names(Kind::REGION));
    /// let region = Region::new(4096)?;
    /// table().name(&Name::parse("/region/frame")?, region.id())?;
    /// assert!(table().has_names(Kind::REGION));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn has_names(&self, kind: Kind) -> bool {
        self.named[kind.row()].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests;
