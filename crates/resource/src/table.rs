//! Resource table: its rows are kinds, its columns the five operations (P3, figure 1: "table
//! program structure"). All locking takes place here.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::id::{Id, KINDS, Kind, Location, Serial};
use crate::locking::{Claim, Claimed, Locking};
use crate::names::{Name, Names};
pub use crate::operation::{Error, Operation};
pub use crate::row::{Command, Row, Usage};
use crate::serials::Generations;

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
    /// Creates an empty table. A process has one, [`table`], which the runtime creates; others are
    /// for tests of kinds.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Error, Kind, Locking, Table};
    /// use kumihimo_resource::{id::Location, serials::Generations}; // An internal crate.
    ///
    /// let table = Table::new(Location::NOWHERE, Generations::unclaimed(), Locking::Vp);
    /// assert!(matches!(table.open(Kind::REGION, &mut ()), Err(Error::NoKind(_))));
    /// ```
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
    /// resource, such as its carrier. Design `vp` takes no lock; `id` takes that of the resource.
    ///
    /// Blocks the kernel thread while another thread holds the lock.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Locking, table};
    /// use kumihimo_resource::locking::Claim; // An internal crate.
    /// use kumihimo_resource::table::Held;
    ///
    /// // Stored in the resource.
    /// let claim = Claim::new();
    /// let held = table().enter_own(Kind::FIRST_OWN, &claim);
    /// assert_eq!(matches!(held, Held::Nothing), table().locking() == Locking::Vp);
    /// ```
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
