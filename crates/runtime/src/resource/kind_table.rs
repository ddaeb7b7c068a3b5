//! Resources of higher crates that are values in the table: one kind each, protected by the table's
//! locking.

use kumihimo_resource::id::{Id, Kind, Serial};
use kumihimo_resource::slots::{Missing, Slots};
use kumihimo_resource::table::{Error, Usage, table};

use crate::kernel_thread::no_events::NoEvents;
use crate::resource::membership;
use crate::scheduler::carrier::Carrier;

/// The management table of one kind. Usually a static.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Entries, Error, Kind};
///
/// static WORDS: Entries<String> = Entries::new(Kind::FIRST_OWN);
///
/// let serial = WORDS.open("hello".to_owned())?;
/// assert_eq!(WORDS.with(serial, |word| word.len())?, 5);
/// assert_eq!(WORDS.close(serial)?, "hello");
/// assert!(matches!(WORDS.close(serial), Err(Error::Stale(_))));
/// # Ok::<(), kumihimo::resource::Error>(())
/// ```
#[derive(Debug)]
pub struct Entries<T> {
    kind: Kind,
    slots: Slots<T>,
}

/// Returns the index of the caller's VP, by which the shared data of a kind is divided. Kernel
/// threads without a VP share index 0.
fn here() -> usize {
    Carrier::current().map_or(0, |carrier| 1 + carrier.vp().index)
}

impl<T> Entries<T> {
    /// Creates an empty table.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Entries, Kind};
    ///
    /// static JOBS: Entries<u64> = Entries::new(Kind::new(17).expect("1 to 31"));
    /// assert_eq!(JOBS.living(), 0);
    /// ```
    #[must_use]
    pub const fn new(kind: Kind) -> Entries<T> {
        Entries { kind, slots: Slots::new() }
    }

    /// Adds a resource. Masks the VP for some tens of nanoseconds; with the locking design `kind`,
    /// for as long as another thread holds the kind's lock.
    ///
    /// # Errors
    /// [`Error::Full`] if the kind has no free slot.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Entries, Kind};
    ///
    /// static WORDS: Entries<&'static str> = Entries::new(Kind::FIRST_OWN);
    /// let (one, two) = (WORDS.open("one")?, WORDS.open("two")?);
    /// assert_ne!(one, two);
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    pub fn open(&self, value: T) -> Result<Serial, Error> {
        let (table, here) = (membership::table(), here());
        // A holder of one of these locks must keep its VP.
        let _quiet = NoEvents::new();
        let _held = table.enter(self.kind);
        self.slots
            .open(table.locking(), table.generations(), here, value)
            .map_err(|_| Error::Full(self.kind))
    }

    /// Removes a resource, and its names.
    ///
    /// # Errors
    /// [`Error::Stale`] if there is no such resource.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Entries, Kind};
    ///
    /// static WORDS: Entries<&'static str> = Entries::new(Kind::FIRST_OWN);
    /// let serial = WORDS.open("one")?;
    /// assert_eq!(WORDS.close(serial)?, "one");
    /// assert!(WORDS.close(serial).is_err(), "the serial is stale");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self, serial: Serial) -> Result<T, Error> {
        let (table, here) = (table(), here());
        let _quiet = NoEvents::new();
        let closed = {
            let _held = table.enter(self.kind);
            self.slots.close(table.locking(), table.generations(), here, serial)
        };
        closed.inspect(|_| table.ended(self.id(serial))).map_err(self.stale(serial))
    }

    /// Calls `f` with exclusive access to a resource, and returns its result. `f` must neither
    /// block nor open or close a resource of the kind.
    ///
    /// # Errors
    /// [`Error::Stale`] if there is no such resource.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Entries, Kind};
    ///
    /// static COUNTS: Entries<u32> = Entries::new(Kind::FIRST_OWN);
    /// let serial = COUNTS.open(0)?;
    /// COUNTS.with(serial, |count| *count += 1)?;
    /// assert_eq!(COUNTS.with(serial, |count| *count)?, 1);
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    pub fn with<R>(&self, serial: Serial, f: impl FnOnce(&mut T) -> R) -> Result<R, Error> {
        let _quiet = NoEvents::new();
        self.slots.with(serial, f).map_err(self.stale(serial))
    }

    /// Visits the rows of the usage table. Restrictions as for [`with`](Entries::with).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Entries, Kind};
    ///
    /// static COUNTS: Entries<u32> = Entries::new(Kind::FIRST_OWN);
    /// let serial = COUNTS.open(7)?;
    /// COUNTS.usage(
    ///     &mut |usage| {
    ///         assert_eq!(usage.serial, serial);
    ///         assert_eq!(usage.state, "at 7");
    ///     },
    ///     |count| format!("at {count}"),
    /// );
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
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

    /// Returns the number of resources.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Entries, Kind};
    ///
    /// static COUNTS: Entries<u32> = Entries::new(Kind::FIRST_OWN);
    /// let serial = COUNTS.open(7)?;
    /// assert_eq!(COUNTS.living(), 1);
    /// COUNTS.close(serial)?;
    /// assert_eq!(COUNTS.living(), 0);
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    #[must_use]
    pub fn living(&self) -> u64 {
        self.slots.living()
    }

    /// Returns the ID of a resource.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Entries, Kind};
    ///
    /// static COUNTS: Entries<u32> = Entries::new(Kind::FIRST_OWN);
    /// let serial = COUNTS.open(7)?;
    /// let id = COUNTS.id(serial);
    /// assert_eq!((id.kind(), id.serial()), (Kind::FIRST_OWN, serial));
    /// # Ok::<(), kumihimo::resource::Error>(())
    /// ```
    #[must_use]
    pub fn id(&self, serial: Serial) -> Id {
        table().id(self.kind, serial)
    }

    fn stale(&self, serial: Serial) -> impl Fn(Missing) -> Error {
        let id = self.id(serial);
        move |_| Error::Stale(id)
    }
}
