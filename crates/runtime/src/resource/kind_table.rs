//! Resources of one kind that are values in the table: what the crates above put there, with the
//! table's locking around it.

use kumihimo_resource::id::{Id, Kind, Serial};
use kumihimo_resource::slots::{Missing, Slots};
use kumihimo_resource::table::{Error, Usage, table};

use crate::kernel_thread::no_events::NoEvents;
use crate::resource::membership;
use crate::scheduler::carrier::Carrier;

/// The management table of one kind. A static, as kinds are.
#[derive(Debug)]
pub struct Entries<T> {
    kind: Kind,
    slots: Slots<T>,
}

/// The caller's virtual processor: where its share of what a kind has in common lies. Kernel
/// threads without one share one.
fn here() -> usize {
    Carrier::current().map_or(0, |carrier| 1 + carrier.vp().index)
}

impl<T> Entries<T> {
    /// An empty one.
    #[must_use]
    pub const fn new(kind: Kind) -> Entries<T> {
        Entries { kind, slots: Slots::new() }
    }

    /// Puts a resource in. Holds the virtual processor for some tens of nanoseconds, or as long as
    /// somebody else of the kind does (`kind`).
    ///
    /// # Errors
    /// [`Error::Full`].
    pub fn open(&self, value: T) -> Result<Serial, Error> {
        let (table, here) = (membership::table(), here());
        // A holder of one of these locks keeps its VP.
        let _quiet = NoEvents::new();
        let _held = table.enter(self.kind);
        self.slots
            .open(table.locking(), table.generations(), here, value)
            .map_err(|_| Error::Full(self.kind))
    }

    /// Takes a resource out, and its names.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn close(&self, serial: Serial) -> Result<T, Error> {
        let (table, here) = (table(), here());
        let _quiet = NoEvents::new();
        let closed = {
            let _held = table.enter(self.kind);
            self.slots.close(table.locking(), table.generations(), here, serial)
        };
        closed.inspect(|_| table.ended(self.id(serial))).map_err(self.stale(serial))
    }

    /// What `f` says of it; nobody else is at it meanwhile. `f` must not block, nor open or close
    /// one of the kind.
    ///
    /// # Errors
    /// [`Error::Stale`].
    pub fn with<R>(&self, serial: Serial, f: impl FnOnce(&mut T) -> R) -> Result<R, Error> {
        let _quiet = NoEvents::new();
        self.slots.with(serial, f).map_err(self.stale(serial))
    }

    /// The rows of the usage table. As [`with`](Entries::with).
    pub fn usage(&self, each: &mut dyn FnMut(Usage), state: impl Fn(&T) -> String) {
        let mut all = Vec::new();
        {
            let _quiet = NoEvents::new();
            self.slots.for_each(|serial, value| {
                all.push(Usage { serial, owner: None, state: state(value) })
            });
        }
        all.into_iter().for_each(each);
    }

    /// How many there are.
    #[must_use]
    pub fn living(&self) -> u64 {
        self.slots.living()
    }

    /// The id of one.
    #[must_use]
    pub fn id(&self, serial: Serial) -> Id {
        table().id(self.kind, serial)
    }

    fn stale(&self, serial: Serial) -> impl Fn(Missing) -> Error {
        let id = self.id(serial);
        move |_| Error::Stale(id)
    }
}
