//! Name tree: `/kind/name` for resources that can be found by name (P3, figure 2).
//!
//! The tree has two levels: names stand under the kind of their resource. A name refers to a
//! resource and never to another name, so there are no cycles. A name has 1 to 255 bytes, contains
//! no `/`, NUL or other control character, and is not `.` or `..`. Within a kind a name belongs to
//! one resource, and a resource may have several names. Names end with their resource
//! ([`Names::forget`]).

mod name;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

#[cfg(feature = "lab")]
use crate::id::KINDS;
use crate::id::{Id, Kind};
use crate::locking::Locking;

pub use name::{Name, NameError};

/// Maximum length of a name in bytes.
pub const LONGEST: usize = 255;
/// Number of partitions of the tree under design `vp`: large enough that two concurrent changes
/// seldom need the same lock.
const PARTS: usize = 64;
/// Maximum number of changes that wait for a slow watcher.
const UNSEEN: usize = 1024;

/// Change of the name tree.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Change, Kind, Name, Region, table};
///
/// let watch = table().names().watch(Some(Kind::REGION), Box::new(|| {}));
/// let (old, new) = (Name::parse("/region/old")?, Name::parse("/region/new")?);
/// let region = Region::new(4096)?;
/// let id = region.id();
/// table().name(&old, id)?;
/// table().names().rename(&old, &new)?;
/// drop(region);
///
/// assert_eq!(watch.next(), Some(Change::Linked(old.clone(), id)));
/// assert_eq!(watch.next(), Some(Change::Renamed(old, new.clone(), id)));
/// assert_eq!(watch.next(), Some(Change::Unlinked(new, id)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Change {
    /// The name was given to a resource.
    Linked(Name, Id),
    /// The name was removed from its resource.
    Unlinked(Name, Id),
    /// The first name was replaced by the second.
    Renamed(Name, Name, Id),
}

#[derive(Default)]
struct Unseen {
    changes: VecDeque<Change>,
    lost: u64,
}

/// Watch on the name tree: queues the changes since its creation. Changes of one name arrive in
/// order.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Name, Region, table};
/// use std::sync::mpsc;
///
/// // Wakes the watcher, which then takes the changes.
/// let (sender, wakes) = mpsc::channel();
/// let watch = table().names().watch(None, Box::new(move || sender.send(()).unwrap()));
/// let region = Region::new(4096)?;
/// table().name(&Name::parse("/region/frame")?, region.id())?;
/// wakes.recv()?;
/// assert!(watch.next().is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Watch {
    kind: Option<Kind>,
    unseen: Mutex<Unseen>,
    arrived: Box<dyn Fn() + Send + Sync>,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl Watch {
    /// Removes and returns the oldest queued change.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Change, Name, Region, table};
    ///
    /// let watch = table().names().watch(None, Box::new(|| {}));
    /// assert_eq!(watch.next(), None);
    /// let (region, name) = (Region::new(4096)?, Name::parse("/region/frame")?);
    /// table().name(&name, region.id())?;
    /// assert_eq!(watch.next(), Some(Change::Linked(name, region.id())));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn next(&self) -> Option<Change> {
        held(&self.unseen).changes.pop_front()
    }

    /// Returns how many changes were dropped because 1,024 were queued.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Name, Region, table};
    ///
    /// let watch = table().names().watch(None, Box::new(|| {}));
    /// let region = Region::new(4096)?;
    /// for n in 0..1030 {
    ///     table().name(&Name::new(Kind::REGION, &format!("name {n}"))?, region.id())?;
    /// }
    /// assert_eq!(watch.lost(), 6, "1,024 changes are queued");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn lost(&self) -> u64 {
        held(&self.unseen).lost
    }

    fn note(&self, change: &Change) {
        let (Change::Linked(name, _) | Change::Unlinked(name, _) | Change::Renamed(name, ..)) =
            change;
        if self.kind.is_some_and(|kind| kind != name.kind) {
            return;
        }
        {
            let mut unseen = held(&self.unseen);
            if unseen.changes.len() < UNSEEN {
                unseen.changes.push_back(change.clone())
            } else {
                unseen.lost += 1
            }
        }
        (self.arrived)();
    }
}

type ById = HashMap<Id, Vec<Name>>;

/// The name tree.
///
/// # Examples
///
/// ```
/// use kumihimo::resource::{Name, Region, table};
///
/// let (region, name) = (Region::new(4096)?, Name::parse("/region/frame")?);
/// table().name(&name, region.id())?;
/// assert_eq!(table().names().find(&name), Ok(region.id()));
/// assert_eq!(table().names().of_id(region.id()), [name]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Names {
    design: Locking,
    /// Partitions, each with its own lock. Several locks are taken in the order of their indices.
    parts: Box<[Mutex<BTreeMap<Name, Id>>]>,
    /// The names of each resource. Its locks are taken inside the lock of the name's partition.
    of: Box<[Mutex<ById>]>,
    watches: Mutex<Vec<Weak<Watch>>>,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names").field("design", &self.design).finish_non_exhaustive()
    }
}

fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the partition of `key` among `n`. The result is the same in every process.
fn part(key: &impl std::hash::Hash, n: usize) -> usize {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(key) as usize % n
}

impl Names {
    /// Creates an empty tree.
    #[must_use]
    pub fn new(design: Locking) -> Names {
        let parts = match design {
            #[cfg(feature = "lab")]
            Locking::Kind => 1,
            #[cfg(feature = "lab")]
            Locking::Id => KINDS,
            Locking::Vp => PARTS,
        };
        Names {
            design,
            parts: (0..parts).map(|_| Mutex::default()).collect(),
            of: (0..parts).map(|_| Mutex::default()).collect(),
            watches: Mutex::default(),
        }
    }

    fn place(&self, name: &Name) -> usize {
        match self.design {
            #[cfg(feature = "lab")]
            Locking::Kind => 0,
            #[cfg(feature = "lab")]
            Locking::Id => name.kind.row(),
            Locking::Vp => part(name, PARTS),
        }
    }

    fn of(&self, id: Id) -> MutexGuard<'_, ById> {
        held(
            &self.of[match self.design {
                #[cfg(feature = "lab")]
                Locking::Kind => 0,
                #[cfg(feature = "lab")]
                Locking::Id => id.kind().row(),
                Locking::Vp => part(&id, PARTS),
            }],
        )
    }

    /// Gives `id` the name `name`.
    ///
    /// # Errors
    /// [`NameError::Taken`], [`NameError::OtherKind`].
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Name, NameError, Region, table};
    ///
    /// // Programs call `Table::name`, which also has the names removed at the end of the resource.
    /// let region = Region::new(4096)?;
    /// let name = Name::new(Kind::GATE, "frame")?;
    /// let error = table().names().link(&name, region.id()).unwrap_err();
    /// assert_eq!(error, NameError::OtherKind(Kind::REGION));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn link(&self, name: &Name, id: Id) -> Result<(), NameError> {
        if name.kind != id.kind() {
            return Err(NameError::OtherKind(id.kind()));
        }
        let mut part = held(&self.parts[self.place(name)]);
        if let Some(holder) = part.get(name) {
            return Err(NameError::Taken(*holder));
        }
        part.insert(name.clone(), id);
        self.of(id).entry(id).or_default().push(name.clone());
        self.tell(&Change::Linked(name.clone(), id));
        Ok(())
    }

    /// Removes a name. Returns the resource that had it.
    ///
    /// # Errors
    /// [`NameError::Unknown`].
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Name, Region, table};
    ///
    /// let (region, name) = (Region::new(4096)?, Name::parse("/region/frame")?);
    /// table().name(&name, region.id())?;
    /// assert_eq!(table().names().unlink(&name)?, region.id());
    /// assert!(table().names().find(&name).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn unlink(&self, name: &Name) -> Result<Id, NameError> {
        let mut part = held(&self.parts[self.place(name)]);
        let id = part.remove(name).ok_or_else(|| NameError::Unknown(name.to_string()))?;
        self.of_one(id, |names| names.retain(|n| n != name));
        self.tell(&Change::Unlinked(name.clone(), id));
        Ok(id)
    }

    /// Replaces a name by another in one step: no thread finds both names or neither. Renaming a
    /// name to itself has no effect.
    ///
    /// # Errors
    /// [`NameError::Unknown`], [`NameError::Taken`], [`NameError::OtherKind`]; the name stays.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Name, Region, table};
    ///
    /// let region = Region::new(4096)?;
    /// let (old, new) = (Name::parse("/region/old")?, Name::parse("/region/new")?);
    /// table().name(&old, region.id())?;
    /// table().names().rename(&old, &new)?;
    /// assert_eq!(table().names().of_id(region.id()), [new]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn rename(&self, from: &Name, to: &Name) -> Result<(), NameError> {
        if from.kind != to.kind {
            return Err(NameError::OtherKind(from.kind));
        }
        let (first, second) =
            (self.place(from).min(self.place(to)), self.place(from).max(self.place(to)));
        let mut low = held(&self.parts[first]);
        let mut high = (first != second).then(|| held(&self.parts[second]));
        let mut at =
            |name: &Name, f: &mut dyn FnMut(&mut BTreeMap<Name, Id>) -> Option<Id>| match &mut high
            {
                Some(high) if self.place(name) == second => f(high),
                _ => f(&mut low),
            };
        let id = at(from, &mut |part| part.get(from).copied())
            .ok_or_else(|| NameError::Unknown(from.to_string()))?;
        if from == to {
            return Ok(());
        }
        if let Some(holder) = at(to, &mut |part| part.get(to).copied()) {
            return Err(NameError::Taken(holder));
        }
        at(from, &mut |part| part.remove(from));
        at(to, &mut |part| part.insert(to.clone(), id));
        self.of_one(id, |names| {
            names.iter_mut().filter(|n| *n == from).for_each(|n| *n = to.clone())
        });
        self.tell(&Change::Renamed(from.clone(), to.clone(), id));
        Ok(())
    }

    fn of_one(&self, id: Id, change: impl FnOnce(&mut Vec<Name>)) {
        let mut of = self.of(id);
        if let Some(names) = of.get_mut(&id) {
            change(names);
            if names.is_empty() {
                of.remove(&id);
            }
        }
    }

    /// Returns the resource with the name `name`.
    ///
    /// # Errors
    /// [`NameError::Unknown`].
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Name, NameError, Region, table};
    ///
    /// let name = Name::parse("/region/frame")?;
    /// assert_eq!(table().names().find(&name), Err(NameError::Unknown("/region/frame".into())));
    /// let region = Region::new(4096)?;
    /// table().name(&name, region.id())?;
    /// assert_eq!(table().names().find(&name), Ok(region.id()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn find(&self, name: &Name) -> Result<Id, NameError> {
        let part = held(&self.parts[self.place(name)]);
        part.get(name).copied().ok_or_else(|| NameError::Unknown(name.to_string()))
    }

    /// Returns the names of a resource, oldest first.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Name, Region, table};
    ///
    /// let region = Region::new(4096)?;
    /// let names = [Name::parse("/region/first")?, Name::parse("/region/alias")?];
    /// for name in &names {
    ///     table().name(name, region.id())?;
    /// }
    /// assert_eq!(table().names().of_id(region.id()), names);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn of_id(&self, id: Id) -> Vec<Name> {
        self.of(id).get(&id).cloned().unwrap_or_default()
    }

    /// Returns all names, or the names of one kind, in order. Not a snapshot: other threads may
    /// change partitions that are already or not yet copied.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Name, Region, table};
    ///
    /// let (one, other) = (Region::new(4096)?, Region::new(4096)?);
    /// let (a, b) = (Name::parse("/region/a")?, Name::parse("/region/b")?);
    /// table().name(&b, one.id())?;
    /// table().name(&a, other.id())?;
    /// let all = table().names().list(Some(Kind::REGION));
    /// assert_eq!(all, [(a, other.id()), (b, one.id())]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn list(&self, kind: Option<Kind>) -> Vec<(Name, Id)> {
        let mut all: Vec<(Name, Id)> = Vec::new();
        for part in &self.parts {
            let part = held(part);
            all.extend(
                part.iter()
                    .filter(|(name, _)| kind.is_none_or(|k| k == name.kind))
                    .map(|(n, id)| (n.clone(), *id)),
            );
        }
        all.sort();
        all
    }

    /// Removes all names of a resource that ends. Searches the tree, so callers skip it for kinds
    /// without names.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Name, Region, table};
    ///
    /// let region = Region::new(4096)?;
    /// table().name(&Name::parse("/region/frame")?, region.id())?;
    /// table().names().forget(region.id());
    /// assert!(table().names().of_id(region.id()).is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn forget(&self, id: Id) {
        for name in self.of_id(id) {
            // Another thread may have replaced the name since; the final check below then removes
            // the new name.
            if self.find(&name) == Ok(id) {
                let _ = self.unlink(&name);
            }
        }
        if !self.of_id(id).is_empty() {
            self.forget(id);
        }
    }

    /// Watches one kind, or all kinds, until the returned `Watch` is dropped. `arrived` is called
    /// after each queued change, with locks of the tree held: it must not block and must not access
    /// the tree.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::resource::{Kind, Name, Region, table};
    ///
    /// let watch = table().names().watch(Some(Kind::GATE), Box::new(|| {}));
    /// let region = Region::new(4096)?;
    /// table().name(&Name::parse("/region/frame")?, region.id())?;
    /// assert_eq!(watch.next(), None, "no change of this kind");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn watch(&self, kind: Option<Kind>, arrived: Box<dyn Fn() + Send + Sync>) -> Arc<Watch> {
        let watch = Arc::new(Watch { kind, unseen: Mutex::default(), arrived });
        let mut watches = held(&self.watches);
        watches.retain(|w| w.strong_count() > 0);
        watches.push(Arc::downgrade(&watch));
        watch
    }

    fn tell(&self, change: &Change) {
        // The lock is held during the calls, so that changes of one name arrive in order.
        for watch in held(&self.watches).iter().filter_map(Weak::upgrade) {
            watch.note(change);
        }
    }
}

#[cfg(test)]
mod tests;
