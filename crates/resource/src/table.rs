//! The table: rows are kinds, columns are the five operations (P3, figure 1: "table program
//! structure"). All locking is here.

use std::any::Any;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::id::{Id, KINDS, Kind, Location, Serial};
use crate::locking::{Claim, Claimed, Locking};
use crate::names::{Name, NameError, Names};
use crate::serials::Generations;

/// A column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// Make one, or find one that is to be had.
    Open,
    /// End it.
    Close,
    /// What it contains, or what it is doing.
    Read,
    /// Put something into it.
    Write,
    /// Whatever else can be done with it.
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

/// Why an operation was not done.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The kind has no such operation.
    Unsupported(Kind, Operation),
    /// There is no such kind here.
    NoKind(Kind),
    /// The id is another address space's.
    Elsewhere(Id),
    /// Its resource has ended, or there never was one.
    Stale(Id),
    /// All slots of the kind are in use.
    Full(Kind),
    /// What was asked for means nothing; says why.
    Invalid(String),
    /// As names go.
    Name(NameError),
    /// What the system said.
    Io(io::Error),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Unsupported(kind, operation) => {
                write!(f, "a {kind} has no operation {operation}")
            }
            Error::NoKind(kind) => write!(f, "this address space has no resources of kind {kind}"),
            Error::Elsewhere(id) => {
                write!(
                    f,
                    "{id} is in another address space: ask that one (kumihimo::machine, kumi)"
                )
            }
            Error::Stale(id) => write!(f, "{id} has ended, or never was"),
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

/// What is done with a resource apart from reading and writing.
#[derive(Debug)]
#[non_exhaustive]
pub enum Command<'a> {
    /// Its user runs no further until it is resumed.
    Suspend,
    /// It may go on.
    Resume,
    /// It is asked to end.
    Cancel,
    /// Its priority, 0 to 63.
    Priority(u8),
    /// What only its own kind understands.
    Own(&'a str),
}

/// One line of the usage table (P3, figures 5 and 6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Which resource of its kind.
    pub serial: Serial,
    /// Its user: kind and serial, in the same address space.
    pub owner: Option<(Kind, Serial)>,
    /// What it is doing, in the words of its kind.
    pub state: String,
}

/// A row: what the five operations do to resources of one kind, and which ones exist.
///
/// Called through the [`Table`] only, which has seen to it that nobody else is at the same resource
/// (or kind: [`Locking`]). So a row takes no lock for that. It may come back to the table for other
/// kinds and for names; for its own kind never, since with the locking design `kind` it would wait
/// for itself. A panic of it is the caller's, and leaves nothing locked. What is not defined is
/// answered with [`Error::Unsupported`].
pub trait Row: Send + Sync {
    /// Which kind it is.
    fn kind(&self) -> Kind;

    /// Makes one as `order` says, whose type is the kind's to document.
    ///
    /// # Errors
    /// Any.
    fn open(&self, order: &mut dyn Any) -> Result<Serial, Error> {
        let _ = order;
        Err(Error::Unsupported(self.kind(), Operation::Open))
    }

    /// Ends it: the serial is stale from now on.
    ///
    /// # Errors
    /// Any.
    fn close(&self, serial: Serial) -> Result<(), Error> {
        let _ = serial;
        Err(Error::Unsupported(self.kind(), Operation::Close))
    }

    /// What it contains, or how it is, as bytes behind `into`. Returns how many.
    ///
    /// # Errors
    /// Any.
    fn read(&self, serial: Serial, into: &mut Vec<u8>) -> Result<usize, Error> {
        let _ = (serial, into);
        Err(Error::Unsupported(self.kind(), Operation::Read))
    }

    /// Puts bytes into it. Returns how many it took.
    ///
    /// # Errors
    /// Any.
    fn write(&self, serial: Serial, from: &[u8]) -> Result<usize, Error> {
        let _ = (serial, from);
        Err(Error::Unsupported(self.kind(), Operation::Write))
    }

    /// Whatever else.
    ///
    /// # Errors
    /// Any.
    fn control(&self, serial: Serial, command: &Command<'_>) -> Result<(), Error> {
        let _ = (serial, command);
        Err(Error::Unsupported(self.kind(), Operation::Control))
    }

    /// Shows each resource of the kind. Others come and go meanwhile.
    fn usage(&self, each: &mut dyn FnMut(Usage));
}

/// The table of an address space.
pub struct Table {
    location: Location,
    generations: Generations,
    locking: Locking,
    rows: [OnceLock<&'static dyn Row>; KINDS],
    /// `kind`: held by a thread that is at a resource of the kind.
    kinds: [Mutex<()>; KINDS],
    names: Names,
    /// Kinds of which something has a name: a resource that ends asks the tree only then.
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

/// What is held for the time of one operation.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Held<'a> {
    Kind(MutexGuard<'a, ()>),
    Own(Claimed<'a>),
    Nothing,
}

static TABLE: OnceLock<Table> = OnceLock::new();

/// Whether the table of this address space has one lock a kind. By itself: every operation asks.
/// Relaxed: set before there is anything to operate on.
static WHOLE_KINDS: AtomicBool = AtomicBool::new(false);

/// Whether the table of this address space has one lock a kind.
#[inline(always)]
#[must_use]
pub fn has_whole_kinds() -> bool {
    cfg!(feature = "lab") && WHOLE_KINDS.load(Ordering::Relaxed)
}

/// The table of this address space: begins with the first call, as one that nobody else can find,
/// unless [`begin`] came before.
#[inline]
pub fn table() -> &'static Table {
    TABLE
        .get_or_init(|| Table::new(Location::NOWHERE, Generations::unclaimed(), Locking::default()))
}

/// Begins the table of this address space.
///
/// # Errors
/// The one that has begun already.
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
    /// An empty one.
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

    /// Where its ids come from.
    #[must_use]
    pub fn location(&self) -> Location {
        self.location
    }

    /// The generations that its slots may use.
    #[inline]
    #[must_use]
    pub fn generations(&self) -> &Generations {
        &self.generations
    }

    /// The locking design.
    #[inline]
    #[must_use]
    pub fn locking(&self) -> Locking {
        self.locking
    }

    /// The id of a resource of this address space.
    #[must_use]
    pub fn id(&self, kind: Kind, serial: Serial) -> Id {
        Id::new(self.location, kind, serial)
    }

    /// Adds a row.
    ///
    /// # Errors
    /// [`Error::Invalid`]: the kind has one already.
    pub fn define(&self, row: &'static dyn Row) -> Result<(), Error> {
        let kind = row.kind();
        self.rows[kind.row()].set(row).map_err(|_| {
            Error::Invalid(format!(
                "kind {kind} has a row already: choose another number, {} to {}",
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

    /// The kind's lock, where there is one. A caller of a procedure of a kind with the resource in
    /// hand, and not through the table's five operations (the compiler has found it then, and not
    /// the table), holds this meanwhile.
    #[inline]
    #[must_use]
    pub fn enter(&self, kind: Kind) -> Option<MutexGuard<'_, ()>> {
        if self.locking.is_by_kind() { Some(self.enter_kind(kind)) } else { None }
    }

    /// As [`enter`](Table::enter), for an operation of a thread that has the resource to itself
    /// anyway (its carrier): `id` takes its lock all the same.
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

    /// Makes a resource.
    ///
    /// # Errors
    /// [`Error::NoKind`], and what the kind says.
    pub fn open(&self, kind: Kind, order: &mut dyn Any) -> Result<Id, Error> {
        let row = self.row(kind)?;
        let _held = self.enter(kind);
        Ok(self.id(kind, row.open(order)?))
    }

    /// Ends a resource, and its names.
    ///
    /// # Errors
    /// [`Error::Elsewhere`], [`Error::NoKind`], [`Error::Stale`], and what the kind says.
    pub fn close(&self, id: Id) -> Result<(), Error> {
        let row = self.here(id)?;
        let closed = {
            let _held = self.enter(id.kind());
            row.close(id.serial())
        };
        closed.inspect(|()| self.ended(id))
    }

    /// What a resource contains, or how it is, behind `into`. Returns how many bytes.
    ///
    /// # Errors
    /// As [`close`](Table::close).
    pub fn read(&self, id: Id, into: &mut Vec<u8>) -> Result<usize, Error> {
        let row = self.here(id)?;
        let _held = self.enter(id.kind());
        row.read(id.serial(), into)
    }

    /// Puts bytes into a resource. Returns how many it took.
    ///
    /// # Errors
    /// As [`close`](Table::close).
    pub fn write(&self, id: Id, from: &[u8]) -> Result<usize, Error> {
        let row = self.here(id)?;
        let _held = self.enter(id.kind());
        row.write(id.serial(), from)
    }

    /// Whatever else is to be done with a resource.
    ///
    /// # Errors
    /// As [`close`](Table::close).
    pub fn control(&self, id: Id, command: &Command<'_>) -> Result<(), Error> {
        let row = self.here(id)?;
        let _held = self.enter(id.kind());
        row.control(id.serial(), command)
    }

    /// The usage table, of one kind or of all. Others come and go meanwhile.
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

    /// The name tree, to look at. Names are given by [`name`](Table::name).
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Names a resource.
    ///
    /// # Errors
    /// [`Error::Elsewhere`], and as names go. That the resource is there is the caller's to know.
    pub fn name(&self, name: &Name, id: Id) -> Result<(), Error> {
        self.here(id)?;
        self.named[id.kind().row()].store(true, Ordering::Relaxed);
        Ok(self.names.link(name, id)?)
    }

    /// A resource has ended: so have its names.
    #[inline]
    pub fn ended(&self, id: Id) {
        if self.named[id.kind().row()].load(Ordering::Relaxed) {
            self.names.forget(id);
        }
    }

    /// Whether resources of that kind may have names.
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

    /// Words that can be read and written.
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
                .ok_or_else(|| Error::Invalid("a Vec<u8> is wanted".into()))?;
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
    fn the_five_operations() {
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
    fn what_is_not_here_is_told_apart() {
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

    /// One lock a kind: a thread inside keeps the others of that kind out, and no other thread.
    #[cfg(feature = "lab")]
    #[test]
    fn kinds_keep_out_their_own_only() {
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
