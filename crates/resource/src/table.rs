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
pub trait Row: Send + Sync {
    /// Returns the kind of the row.
    fn kind(&self) -> Kind;

    /// Creates a resource as `order` specifies; each kind documents the type of its order.
    ///
    /// # Errors
    /// Any [`Error`].
    fn open(&self, order: &mut dyn Any) -> Result<Serial, Error> {
        let _ = order;
        Err(Error::Unsupported(self.kind(), Operation::Open))
    }

    /// Ends the resource; its serial becomes stale.
    ///
    /// # Errors
    /// Any [`Error`].
    fn close(&self, serial: Serial) -> Result<(), Error> {
        let _ = serial;
        Err(Error::Unsupported(self.kind(), Operation::Close))
    }

    /// Appends the content or the state of the resource to `into`. Returns the number of bytes.
    ///
    /// # Errors
    /// Any [`Error`].
    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let _ = (serial, into);
        Err(Error::Unsupported(self.kind(), Operation::Read))
    }

    /// Writes bytes to the resource. Returns the number of bytes accepted.
    ///
    /// # Errors
    /// Any [`Error`].
    fn write(&self, serial: Serial, from: &[u8]) -> Result<usize, Error> {
        let _ = (serial, from);
        Err(Error::Unsupported(self.kind(), Operation::Write))
    }

    /// Executes a command on the resource.
    ///
    /// # Errors
    /// Any [`Error`].
    fn control(&self, serial: Serial, command: &Command<'_>) -> Result<(), Error> {
        let _ = (serial, command);
        Err(Error::Unsupported(self.kind(), Operation::Control))
    }

    /// Calls `each` for each resource of the kind. Not a snapshot: resources may open and close
    /// meanwhile.
    fn usage(&self, each: &mut dyn FnMut(Usage));
}

/// Resource table of an address space.
///
/// The table itself blocks no caller, except with locking design `kind`. There an operation blocks
/// the kernel thread while another thread executes an operation on the same kind.
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
    #[must_use]
    pub fn location(&self) -> Location {
        self.location
    }

    /// Returns the generations that the table's slots may use.
    #[inline]
    #[must_use]
    pub fn generations(&self) -> &Generations {
        &self.generations
    }

    /// Returns the locking design.
    #[inline]
    #[must_use]
    pub fn locking(&self) -> Locking {
        self.locking
    }

    /// Returns the id of a resource of this address space.
    #[must_use]
    pub fn id(&self, kind: Kind, serial: Serial) -> Id {
        Id::new(self.location, kind, serial)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the kind already has a row.
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
    pub fn open(&self, kind: Kind, order: &mut dyn Any) -> Result<Id, Error> {
        let row = self.row(kind)?;
        let _held = self.enter(kind);
        Ok(self.id(kind, row.open(order)?))
    }

    /// Ends a resource and removes its names.
    ///
    /// # Errors
    /// [`Error::Elsewhere`], [`Error::NoKind`], [`Error::Stale`], and the errors of the kind.
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
    pub fn read(&self, id: Id, into: &mut Vec<u8>) -> Result<usize, Error> {
        let row = self.here(id)?;
        let _held = self.enter(id.kind());
        row.read(id.serial(), into)
    }

    /// Writes bytes to a resource. Returns the number of bytes accepted.
    ///
    /// # Errors
    /// As [`close`](Table::close).
    pub fn write(&self, id: Id, from: &[u8]) -> Result<usize, Error> {
        let row = self.here(id)?;
        let _held = self.enter(id.kind());
        row.write(id.serial(), from)
    }

    /// Executes a command on a resource.
    ///
    /// # Errors
    /// As [`close`](Table::close).
    pub fn control(&self, id: Id, command: &Command<'_>) -> Result<(), Error> {
        let row = self.here(id)?;
        let _held = self.enter(id.kind());
        row.control(id.serial(), command)
    }

    /// Visits the usage table of one kind or of all kinds. Not a snapshot: resources may open and
    /// close meanwhile.
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
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Gives a resource a name. The caller guarantees that the resource exists.
    ///
    /// # Errors
    /// [`Error::Elsewhere`], [`Error::NoKind`], and the errors of the name tree.
    pub fn name(&self, name: &Name, id: Id) -> Result<(), Error> {
        self.here(id)?;
        self.named[id.kind().row()].store(true, Ordering::Relaxed);
        Ok(self.names.link(name, id)?)
    }

    /// Removes the names of a resource that has ended.
    #[inline]
    pub fn ended(&self, id: Id) {
        if self.named[id.kind().row()].load(Ordering::Relaxed) {
            self.names.forget(id);
        }
    }

    /// Returns whether resources of the kind may have names.
    #[inline]
    #[must_use]
    pub fn has_names(&self, kind: Kind) -> bool {
        self.named[kind.row()].load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::{Missing, Slots};

    /// Test kind: words that can be opened, closed and read.
    struct Words {
        kind: Kind,
        slots: Slots<Vec<u8>>,
        generations: Generations,
    }

    impl Words {
        fn leaked(kind: Kind) -> &'static Words {
            Box::leak(Box::new(Words {
                kind,
                slots: Slots::new(),
                generations: Generations::unclaimed(),
            }))
        }

        fn stale(&self, serial: Serial) -> impl Fn(Missing) -> Error {
            let id = Id::new(Location::NOWHERE, self.kind, serial);
            move |_| Error::Stale(id)
        }
    }

    impl Row for Words {
        fn kind(&self) -> Kind {
            self.kind
        }
        fn open(&self, order: &mut dyn Any) -> Result<Serial, Error> {
            let order = order
                .downcast_mut::<Vec<u8>>()
                .ok_or_else(|| Error::Invalid("expected a Vec<u8>".into()))?;
            self.slots
                .open(Locking::Vp, &self.generations, 0, std::mem::take(order))
                .map_err(|_| Error::Full(self.kind))
        }
        fn close(&self, serial: Serial) -> Result<(), Error> {
            self.slots
                .close(Locking::Vp, &self.generations, 0, serial)
                .map(drop)
                .map_err(self.stale(serial))
        }
        fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
            let copy = |word: &mut Vec<u8>| {
                into.extend_from_slice(word);
                word.len()
            };
            self.slots.with(serial, copy).map_err(self.stale(serial))
        }
        fn usage(&self, each: &mut dyn FnMut(Usage)) {
            self.slots.for_each(|serial, word| {
                each(Usage { serial, owner: None, state: format!("{} bytes", word.len()) })
            });
        }
    }

    fn table(locking: Locking) -> (Table, Kind) {
        let table = Table::new(Location::NOWHERE, Generations::unclaimed(), locking);
        table.define(Words::leaked(Kind::FIRST_OWN)).unwrap();
        (table, Kind::FIRST_OWN)
    }

    #[test]
    fn operations_reach_the_row() {
        for locking in Locking::ALL {
            let (table, kind) = table(locking);
            let id = table.open(kind, &mut b"word".to_vec()).unwrap();
            table.name(&Name::new(kind, "first").unwrap(), id).unwrap();
            let mut read = Vec::new();
            assert_eq!(
                table
                    .read(
                        table.names().find(&Name::parse("/kind16/first").unwrap()).unwrap(),
                        &mut read
                    )
                    .unwrap(),
                4
            );
            assert_eq!(read, b"word");
            assert!(
                matches!(table.write(id, b"x"), Err(Error::Unsupported(k, Operation::Write)) if k == kind)
            );
            assert!(matches!(
                table.control(id, &Command::Suspend),
                Err(Error::Unsupported(_, Operation::Control))
            ));
            let mut seen = Vec::new();
            table.usage(None, &mut |id, usage| seen.push((id, usage.state)));
            assert_eq!(seen, [(id, "4 bytes".to_owned())]);
            table.close(id).unwrap();
            assert!(matches!(table.close(id), Err(Error::Stale(_))));
            assert!(matches!(table.read(id, &mut read), Err(Error::Stale(_))));
            assert_eq!(table.names().list(None), []);
        }
    }

    #[test]
    fn errors_distinguish_missing_resources() {
        let (table, kind) = table(Locking::Vp);
        let serial = Serial::new(0, 0);
        let elsewhere = Id::new(Location::new(3).unwrap(), kind, serial);
        assert!(matches!(table.close(elsewhere), Err(Error::Elsewhere(_))));
        assert!(matches!(
            table.close(table.id(Kind::TIMER, serial)),
            Err(Error::NoKind(Kind::TIMER))
        ));
        assert!(matches!(table.close(table.id(kind, serial)), Err(Error::Stale(_))));
        assert!(matches!(table.open(kind, &mut 5), Err(Error::Invalid(_))));
        assert!(matches!(table.define(Words::leaked(kind)), Err(Error::Invalid(_))));
    }

    /// Under one lock per kind, a thread inside a kind excludes other threads from that kind only.
    #[cfg(feature = "lab")]
    #[test]
    fn kind_lock_excludes_its_own_kind_only() {
        let (table, kind) = table(Locking::Kind);
        let held = table.enter(kind);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| table.open(kind, &mut Vec::<u8>::new()).unwrap());
            assert!(table.enter(Kind::TIMER).is_some());
            assert!(table.kinds[kind.row()].try_lock().is_err());
            drop(held);
            waits.join().unwrap();
        });
        assert!(
            Table::new(Location::NOWHERE, Generations::unclaimed(), Locking::Id)
                .enter(kind)
                .is_none()
        );
    }
}
