//! Applies the same operations to a model and to a store under test, and compares all results.
//!
//! Some results may legitimately differ and are not compared: inode numbers (but the same inode
//! always has the same number), blocks, the preferred block size, the size of a directory, and the
//! time of the last read unless it was set.

mod apply;
mod checked;
mod listing;
mod walk;

use std::collections::BTreeMap;

use kumihimo_store::{Attributes, Caller, Entry, Errno, Handle, Kind, Node, Result, Store};

use crate::clock;
use crate::model::{Limits, Model};
use crate::operations::Operation;
pub use checked::Difference;
use checked::{Both, Checked};
use listing::Listing;

/// A store under test.
pub trait Subject {
    /// The store in its current state.
    fn store(&self) -> &dyn Store;

    /// Closes the store, verifies the closed image as far as possible, and opens it again.
    ///
    /// # Errors
    /// Description of what is wrong.
    fn remount(&mut self) -> std::result::Result<(), String>;

    /// Gives the store an opportunity to write cached data back.
    fn write_back(&self) {}

    /// Deviations from the model that are allowed for this store.
    fn rules(&self) -> Rules {
        Rules::default()
    }
}

/// Deviations from the model that are allowed for a store. By default there are none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// The volume is small: an operation that needs space may fail with `ENOSPC` and then changes
    /// nothing.
    pub small: bool,
    /// Limits that the store may choose.
    pub limits: Limits,
    /// Bytes available for the xattrs of an inode, if limited. Each entry takes 16 bytes in
    /// addition.
    pub xattr_room: Option<usize>,
    /// The store's times do not come from the model's clock.
    pub own_time: bool,
    /// The link counts of directories may differ.
    pub own_directory_links: bool,
    /// The store cannot allocate space beyond the end of a file: `fallocate` with `KEEP_SIZE` may
    /// fail.
    pub no_room_beyond: bool,
    /// An inode number may be reused with the same generation.
    pub no_generations: bool,
    /// Pairs of errors that count as equal: the model's, and the store's.
    pub same: &'static [(Errno, Errno)],
}

#[derive(Debug)]
struct Held {
    node: Both,
    references: u64,
}

#[derive(Clone, Copy, Debug)]
struct Opened {
    node: Both,
    handle: Handle,
    writing: bool,
}

/// A model and a store under test with the same contents.
pub struct Pair<S> {
    model: Model,
    subject: S,
    rules: Rules,
    /// Inodes with references, the root first.
    held: Vec<Held>,
    opened: Vec<Opened>,
    listings: Vec<Listing>,
    /// Generations that each inode number of the subject has had.
    generations: BTreeMap<Node, Vec<u64>>,
}

/// Pairs of errors that count as equal, the model's and a store's: if an operation fails for two
/// reasons, either error is correct.
const ALIKE: [(Errno, Errno); 6] = [
    // A directory is moved into its own removed subdirectory.
    (Errno::NOENT, Errno::INVAL),
    // A hard link to a directory, where the new name also exists, is too long, or is in a removed
    // directory.
    (Errno::EXIST, Errno::PERM),
    (Errno::NAMETOOLONG, Errno::PERM),
    (Errno::NOENT, Errno::PERM),
    // A name that is too long in a removed directory, or below something that is no directory.
    (Errno::NAMETOOLONG, Errno::NOENT),
    (Errno::NAMETOOLONG, Errno::NOTDIR),
];

/// The user that performs all operations.
const CALLER: Caller = Caller { uid: 1000, gid: 100, pid: 1, umask: 0 };

impl<S: Subject> Pair<S> {
    /// Starts with both stores as after `mke2fs`: a root with its permissions and, if the subject
    /// has it, `lost+found`. The subject's clock must be [`clock::now`].
    ///
    /// # Errors
    /// The first difference.
    pub fn new(subject: S) -> Checked<Pair<S>> {
        let (root, rules) = (subject.store().root(), subject.rules());
        let attributes = subject
            .store()
            .attributes(root)
            .map_err(|errno| format!("the root's attributes: {errno}"))?;
        let model = Model::new(rules.limits, attributes.permissions);
        let held = vec![Held { node: Both { model: model.root(), subject: root }, references: 0 }];
        let mut pair = Pair {
            model,
            subject,
            rules,
            held,
            opened: Vec::new(),
            listings: Vec::new(),
            generations: BTreeMap::new(),
        };
        pair.take_over()?;
        Ok(pair)
    }

    /// Copies the initial contents of the subject's root into the model.
    fn take_over(&mut self) -> Checked {
        let root = self.held[0].node;
        let store = self.subject.store();
        let change = |errno: Errno| format!("what is there already: {errno}");
        for name in listing::names(store, root.subject).map_err(change)? {
            let there = store.lookup(root.subject, &name).map_err(change)?.attributes;
            if there.kind != Kind::Directory {
                return Err(format!("{:?} is there already", String::from_utf8_lossy(&name)));
            }
            let what = kumihimo_store::New::Directory { mode: there.permissions };
            let caller = Caller { uid: there.uid, gid: there.gid, pid: 1, umask: 0 };
            let made =
                self.model.make(&caller, root.model, &name, what).map_err(change)?.attributes;
            self.model.adopt(made.node, &there);
            self.held
                .push(Held { node: Both { model: made.node, subject: there.node }, references: 1 });
        }
        let there = store.attributes(root.subject).map_err(change)?;
        self.model.adopt(root.model, &there);
        Ok(())
    }

    /// Applies all operations and then compares the trees.
    ///
    /// # Errors
    /// The first difference.
    pub fn run(&mut self, operations: &[Operation]) -> Checked {
        for (number, operation) in operations.iter().enumerate() {
            clock::tick();
            self.apply(operation)
                .map_err(|what| format!("operation {number}, {operation:?}: {what}"))?;
        }
        self.walk().map_err(|what| format!("afterwards: {what}"))
    }

    /// Releases all references, forgets all inodes, and closes the store.
    ///
    /// # Errors
    /// Description of what is wrong.
    pub fn end(mut self) -> Checked<S> {
        self.let_go();
        self.subject.store().close().map_err(|errno| format!("close: {errno}"))?;
        Ok(self.subject)
    }

    fn let_go(&mut self) {
        while let Some(listing) = self.listings.pop() {
            self.subject.store().release(listing.node.subject, listing.handle);
        }
        while let Some(open) = self.opened.pop() {
            self.close(open);
        }
        while self.held.len() > 1 {
            self.forget(self.held.len() - 1);
        }
        let root = &mut self.held[0];
        self.subject.store().forget(root.node.subject, root.references);
        self.model.forget(root.node.model, root.references);
        root.references = 0;
    }

    fn close(&self, open: Opened) {
        self.subject.store().release(open.node.subject, open.handle);
        self.model.release(open.node.model, Handle(0));
    }

    fn forget(&mut self, place: usize) {
        let held = self.held.remove(place);
        self.subject.store().forget(held.node.subject, held.references);
        self.model.forget(held.node.model, held.references);
    }

    /// Compares two results. Returns the values if both succeeded.
    fn both<A, B>(
        &self,
        subject: Result<A>,
        model: impl FnOnce() -> Result<B>,
    ) -> Checked<Option<(A, B)>> {
        if self.rules.small && matches!(subject, Err(Errno::NOSPC)) {
            return Ok(None);
        }
        match (subject, model()) {
            (Ok(subject), Ok(model)) => Ok(Some((subject, model))),
            (Err(subject), Err(model))
                if subject == model
                    || ALIKE.contains(&(model, subject))
                    || self.rules.same.contains(&(model, subject)) =>
            {
                Ok(None)
            }
            (Ok(_), Err(model)) => Err(format!("succeeded, expected {model}")),
            (Err(subject), Ok(_)) => Err(format!("refused: {subject}")),
            (Err(subject), Err(model)) => Err(format!("failed with {subject}, expected {model}")),
        }
    }

    /// Compares the attributes of the same inode in both stores.
    fn same(&self, subject: &Attributes, model: &Attributes) -> Checked {
        // An open file may have been read in between, so the access time is not compared here.
        // `Change` compares it directly after it was set.
        let plain = |attributes: &Attributes| Attributes {
            node: Node(0),
            blocks: 0,
            block_size: 0,
            atime: kumihimo_store::Time::default(),
            size: if attributes.kind == Kind::Directory { 0 } else { attributes.size },
            links: if attributes.kind == Kind::Directory && self.rules.own_directory_links {
                0
            } else {
                attributes.links
            },
            mtime: if self.rules.own_time {
                kumihimo_store::Time::default()
            } else {
                attributes.mtime
            },
            ctime: if self.rules.own_time {
                kumihimo_store::Time::default()
            } else {
                attributes.ctime
            },
            ..*attributes
        };
        let (subject, model) = (plain(subject), plain(model));
        if subject == model {
            Ok(())
        } else {
            Err(format!("attributes {subject:?}, expected {model:?}"))
        }
    }

    /// Compares two entries for the same inode, and counts one more reference to it.
    fn entry(&mut self, subject: &Entry, model: &Entry, new: bool) -> Checked {
        let (found, asked) = (subject.attributes.node, model.attributes.node);
        match self
            .held
            .iter_mut()
            .find(|held| held.node.model == asked || held.node.subject == found)
        {
            Some(held) if held.node == (Both { model: asked, subject: found }) && !new => {
                held.references += 1
            }
            Some(held) => {
                return Err(format!(
                    "inode {found:?}, but inode {:?} corresponds to the model's {:?}",
                    held.node.subject, held.node.model
                ));
            }
            None => {
                self.held.push(Held { node: Both { model: asked, subject: found }, references: 1 })
            }
        }
        let seen = self.generations.entry(found).or_default();
        let known = seen.contains(&subject.generation);
        if new && known && !self.rules.no_generations {
            return Err(format!(
                "inode {found:?} is reused with the same generation {}",
                subject.generation
            ));
        }
        if !known {
            seen.push(subject.generation);
        }
        self.same(&subject.attributes, &model.attributes)
    }
}
