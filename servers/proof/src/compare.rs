//! Two stores, a model and one under test, to which the same is done: whatever they say is
//! compared.
//!
//! Not compared, because stores may differ there: numbers of inodes (but the same inode always has
//! the same number), blocks, the best size of a block, the size of a directory, and the time of the
//! last read unless it was set.

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
    /// As it is now.
    fn store(&self) -> &dyn Store;

    /// Closes it, checks what can be checked of it then, and opens it again.
    ///
    /// # Errors
    /// What was wrong, in words.
    fn remount(&mut self) -> std::result::Result<(), String>;

    /// It may write back what it keeps.
    fn write_back(&self) {}

    /// What is not to be expected of it.
    fn rules(&self) -> Rules {
        Rules::default()
    }
}

/// What is not to be expected of a store. By default everything is.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules {
    /// It is small: any operation that takes room may say `ENOSPC`, and then changes nothing.
    pub small: bool,
    /// What it may choose.
    pub limits: Limits,
    /// It has room for so many bytes of xattrs of an inode, entries of 16 bytes each besides.
    pub xattr_room: Option<usize>,
    /// Its times are not the model's clock's.
    pub own_time: bool,
    /// Directories have links of their own counting.
    pub own_directory_links: bool,
    /// There is no room beyond a file's end: `fallocate` with `KEEP_SIZE` may be refused.
    pub no_room_beyond: bool,
    /// Numbers of inodes may come again with the same generation.
    pub no_generations: bool,
    /// Two refusals of the same operation that are both right: what the model says, what the store
    /// says.
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

/// A model and a store under test, side by side.
pub struct Pair<S> {
    model: Model,
    subject: S,
    rules: Rules,
    /// The root first.
    held: Vec<Held>,
    opened: Vec<Opened>,
    listings: Vec<Listing>,
    /// Generations seen of each number of the subject.
    generations: BTreeMap<Node, Vec<u64>>,
}

/// Where there are two reasons to refuse, which is said first is nobody's promise: what the model
/// says, what a store may say.
const ALIKE: [(Errno, Errno); 6] = [
    // A directory moved into one that was removed, and lay in it.
    (Errno::NOENT, Errno::INVAL),
    // A second name of a directory: which is there already, or too long, or in a directory that was
    // removed.
    (Errno::EXIST, Errno::PERM),
    (Errno::NAMETOOLONG, Errno::PERM),
    (Errno::NOENT, Errno::PERM),
    // A name too long for what is not there, or beside what is no directory.
    (Errno::NAMETOOLONG, Errno::NOENT),
    (Errno::NAMETOOLONG, Errno::NOTDIR),
];

/// The user that does it all.
const CALLER: Caller = Caller { uid: 1000, gid: 100, pid: 1 };

impl<S: Subject> Pair<S> {
    /// Both are as after `mke2fs`: the root with its permissions and, if the subject has them,
    /// `lost+found`. Its clock is [`clock::now`].
    ///
    /// # Errors
    /// What differs.
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

    /// What the subject has in its root already becomes the model's.
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
            let caller = Caller { uid: there.uid, gid: there.gid, pid: 1 };
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

    /// Does all of it, then compares the trees.
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

    /// Everything is given back and forgotten, then the store is closed.
    ///
    /// # Errors
    /// What was wrong.
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

    /// Compares what both said; what they gave if both did.
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
            (Ok(_), Err(model)) => Err(format!("done, where it had to be refused: {model}")),
            (Err(subject), Ok(_)) => Err(format!("refused: {subject}")),
            (Err(subject), Err(model)) => {
                Err(format!("refused with {subject}, where it had to be {model}"))
            }
        }
    }

    /// Compares the attributes of what must be the same inode.
    fn same(&self, subject: &Attributes, model: &Attributes) -> Checked {
        // Whichever is open may have been looked at in between: the last read is not compared, but
        // what a moment ago was set is, by `Change`.
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
            Err(format!("attributes {subject:?}, where they had to be {model:?}"))
        }
    }

    /// Both gave an entry: the same inode, now held once more.
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
                    "inode {found:?}, where {:?} was held as the model's {:?}",
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
            return Err(format!("inode {found:?} again with generation {}", subject.generation));
        }
        if !known {
            seen.push(subject.generation);
        }
        self.same(&subject.attributes, &model.attributes)
    }
}
