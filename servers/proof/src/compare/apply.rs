//! Applies one operation to both stores.

use kumihimo_store::{Changes, Errno, Handle, Kind, New, Node, Seek, Stamp, Store, Time};

use super::checked::{Both, Checked};
use super::listing::Listing;
use super::{CALLER, Opened, Pair, Subject};
use crate::operations::{self, Change, Made, Name, Operation};

/// open(2)'s `O_RDWR`.
const WRITING: u32 = 2;
/// Limit on references and open files. The trees are small, so the limit is rarely reached.
const MOST: usize = 12;

impl<S: Subject> Pair<S> {
    fn node(&self, number: u8) -> Both {
        self.held[usize::from(number) % self.held.len()].node
    }

    /// Selects a directory for most numbers, any inode for the rest.
    fn directory(&self, number: u8) -> Both {
        if number >= 250 {
            return self.node(number);
        }
        let directories: Vec<Both> = self
            .held
            .iter()
            .map(|held| held.node)
            .filter(|node| self.kind(*node) == Some(Kind::Directory))
            .collect();
        directories[usize::from(number) % directories.len()]
    }

    /// Selects a regular file for most numbers, if there is one.
    fn file(&self, number: u8) -> Both {
        let files: Vec<Both> = self
            .held
            .iter()
            .map(|held| held.node)
            .filter(|node| self.kind(*node) == Some(Kind::File))
            .collect();
        if number >= 250 || files.is_empty() {
            self.node(number)
        } else {
            files[usize::from(number) % files.len()]
        }
    }

    fn kind(&self, node: Both) -> Option<Kind> {
        self.model.kind(node.model)
    }

    /// Applies `operation` to both stores.
    pub(super) fn apply(&mut self, operation: &Operation) -> Checked {
        match *operation {
            Operation::Lookup { directory, name } => {
                self.lookup(self.directory(directory), &name.bytes())
            }
            Operation::Make { directory, name, ref what } => {
                self.make(self.directory(directory), &name.bytes(), what)
            }
            Operation::Unlink { directory, name } => {
                let directory = self.directory(directory);
                self.gone(directory, name, |store, node, name| store.unlink(node, name))
            }
            Operation::RemoveDirectory { directory, name } => {
                let directory = self.directory(directory);
                self.gone(directory, name, |store, node, name| store.remove_directory(node, name))
            }
            Operation::Rename { from, name, to, new_name, keep } => self.rename(
                self.directory(from),
                &name.bytes(),
                self.directory(to),
                &new_name.bytes(),
                keep,
            ),
            Operation::Link { node, directory, name } => {
                self.link(self.node(node), self.directory(directory), &name.bytes())
            }
            Operation::Attributes { node } => self.attributes(self.node(node)),
            Operation::Change { node, ref change } => {
                let node = if matches!(change, Change::Size { .. }) {
                    self.file(node)
                } else {
                    self.node(node)
                };
                self.change(node, change)
            }
            Operation::ReadLink { node } => self.read_link(self.node(node)),
            Operation::Open { node, writing } => self.open(self.file(node), writing).map(|_| ()),
            Operation::Release { open } => {
                if !self.opened.is_empty() {
                    let open = self.opened.remove(usize::from(open) % self.opened.len());
                    self.close(open);
                }
                Ok(())
            }
            Operation::Read { node, at, length } => self.opened(node, false, |pair, open| {
                pair.compare_range(open.node, open.handle, at, u64::from(length))
            }),
            Operation::Write { node, at, length, fill } => self.opened(node, true, |pair, open| {
                pair.write(open, at, &operations::bytes(at, length, fill))
            }),
            Operation::Allocate { node, mode, at, length } => {
                self.opened(node, true, |pair, open| {
                    pair.allocate(open, mode, at, u64::from(length))
                })
            }
            Operation::Seek { node, at, what } => {
                self.opened(node, false, |pair, open| pair.seek(open, at, what))
            }
            Operation::Sync { node, data } => self.sync(self.node(node), data),
            Operation::SyncAll => {
                self.subject.store().sync_all().map_err(|errno| format!("refused: {errno}"))
            }
            Operation::List { directory, portion } => self.list(self.directory(directory), portion),
            Operation::Begin { directory, portion } => {
                self.begin(self.directory(directory), portion)
            }
            Operation::Finish { listing, portion } => self.finish(listing, portion),
            Operation::Xattr { node, name } => {
                self.xattr(self.node(node), &operations::xattr_name(name))
            }
            Operation::Xattrs { node } => self.same_xattrs(self.node(node)),
            Operation::SetXattr { .. } => self.set_xattr(operation),
            Operation::RemoveXattr { node, name } => {
                self.remove_xattr(self.node(node), &operations::xattr_name(name))
            }
            Operation::Forget { node } => {
                self.forget_one(usize::from(node) % self.held.len());
                Ok(())
            }
            Operation::WriteBack => {
                self.subject.write_back();
                Ok(())
            }
            Operation::Remount => {
                self.let_go();
                self.subject.remount()?;
                self.walk()
            }
        }
    }

    fn forget_one(&mut self, place: usize) {
        let node = self.held[place].node;
        let used = self.opened.iter().any(|open| open.node == node)
            || self.listings.iter().any(|listing| listing.node == node);
        if place > 0 && !used {
            self.forget(place);
        }
    }

    /// Notes a changed name in all active listings of `directory`.
    fn touch(&mut self, directory: Both, name: &[u8]) {
        for listing in self.listings.iter_mut().filter(|listing| listing.node == directory) {
            listing.touch(name);
        }
    }

    fn lookup(&mut self, directory: Both, name: &[u8]) -> Checked {
        let found = self.subject.store().lookup(directory.subject, name);
        match self.both(found, || self.model.lookup(directory.model, name))? {
            Some((subject, model)) => self.entry(&subject, &model, false),
            None => Ok(()),
        }
    }

    fn make(&mut self, directory: Both, name: &[u8], what: &Made) -> Checked {
        let target;
        let what = match *what {
            Made::File { mode } => New::File { mode },
            Made::Directory { mode } => New::Directory { mode },
            Made::Special { kind, mode, device } => New::Special { kind, mode, device },
            Made::Symlink { length } => {
                target = operations::target(length);
                New::Symlink { target: &target }
            }
        };
        let made = self.subject.store().make(&CALLER, directory.subject, name, what);
        let Some((subject, model)) =
            self.both(made, || self.model.make(&CALLER, directory.model, name, what))?
        else {
            return Ok(());
        };
        self.touch(directory, name);
        self.entry(&subject, &model, true)?;
        self.attributes(directory)
    }

    fn gone(
        &mut self,
        directory: Both,
        name: Name,
        remove: impl Fn(&dyn Store, Node, &[u8]) -> kumihimo_store::Result<()>,
    ) -> Checked {
        let name = name.bytes();
        let subject = remove(self.subject.store(), directory.subject, &name);
        // Removing a name must work on a full disk, too.
        if subject == Err(Errno::NOSPC) {
            return Err("failed with ENOSPC".to_owned());
        }
        if self.both(subject, || remove(&self.model, directory.model, &name))?.is_some() {
            self.touch(directory, &name);
            self.attributes(directory)?;
        }
        Ok(())
    }

    fn rename(
        &mut self,
        from: Both,
        name: &[u8],
        to: Both,
        new_name: &[u8],
        keep: bool,
    ) -> Checked {
        let renamed = self.subject.store().rename(from.subject, name, to.subject, new_name, keep);
        if self
            .both(renamed, || self.model.rename(from.model, name, to.model, new_name, keep))?
            .is_none()
        {
            return Ok(());
        }
        self.touch(from, name);
        self.touch(to, new_name);
        // A moved directory has another `..`. An active listing of it may show the old or the new
        // one.
        for node in self.listings.iter().map(|listing| listing.node).collect::<Vec<_>>() {
            self.touch(node, b"..");
        }
        self.attributes(from)?;
        self.attributes(to)
    }

    fn link(&mut self, node: Both, directory: Both, name: &[u8]) -> Checked {
        let linked = self.subject.store().link(node.subject, directory.subject, name);
        let Some((subject, model)) =
            self.both(linked, || self.model.link(node.model, directory.model, name))?
        else {
            return Ok(());
        };
        self.touch(directory, name);
        self.entry(&subject, &model, false)?;
        self.attributes(directory)
    }

    fn attributes(&self, node: Both) -> Checked {
        let subject = self.subject.store().attributes(node.subject);
        match self.both(subject, || self.model.attributes(node.model))? {
            Some((subject, model)) => {
                self.same(&subject, &model).map_err(|what| format!("{node:?}: {what}"))
            }
            None => Ok(()),
        }
    }

    fn change(&mut self, node: Both, change: &Change) -> Checked {
        let at = |time: u32| Stamp::At(Time { seconds: i64::from(time), nanoseconds: 0 });
        let none = Changes::default();
        let changes = match *change {
            Change::Permissions(permissions) => Changes { permissions: Some(permissions), ..none },
            Change::Owner { uid, gid, kill } => {
                Changes { uid: Some(uid), gid: Some(gid), kill_privileges: kill, ..none }
            }
            Change::Size { size, kill } => {
                Changes { size: Some(size), kill_privileges: kill, ..none }
            }
            Change::Times { atime, mtime } => {
                let stamp = |time: Option<u32>| Some(time.map_or(Stamp::Now, at));
                Changes { atime: stamp(atime), mtime: stamp(mtime), ..none }
            }
        };
        let changed = self.subject.store().change(node.subject, &changes);
        let Some((subject, model)) =
            self.both(changed, || self.model.change(node.model, &changes))?
        else {
            return Ok(());
        };
        if changes.atime.is_some() && subject.atime != model.atime && !self.rules.own_time {
            return Err(format!(
                "the access time is {:?}, expected {:?}",
                subject.atime, model.atime
            ));
        }
        self.same(&subject, &model)
    }

    fn read_link(&self, node: Both) -> Checked {
        match self.both(self.subject.store().read_link(node.subject), || {
            self.model.read_link(node.model)
        })? {
            Some((subject, model)) if subject != model => {
                Err(format!("the target is {subject:?}, expected {model:?}"))
            }
            _ => Ok(()),
        }
    }

    fn open(&mut self, node: Both, writing: bool) -> Checked<Option<Opened>> {
        // The kernel opens everything except files and directories without the store.
        if !matches!(self.kind(node), Some(Kind::File | Kind::Directory)) {
            return Ok(None);
        }
        // The kernel itself refuses to open a directory for writing.
        let writing = writing && self.kind(node) == Some(Kind::File);
        let flags = if writing { WRITING } else { 0 };
        let opened = self.subject.store().open(node.subject, flags);
        let Some((handle, _)) = self.both(opened, || self.model.open(node.model, flags))? else {
            return Ok(None);
        };
        let open = Opened { node, handle, writing };
        self.opened.push(open);
        if self.opened.len() > MOST {
            let open = self.opened.remove(0);
            self.close(open);
        }
        Ok(Some(open))
    }

    /// Calls an operation with an open file, and opens the file first if necessary.
    fn opened(
        &mut self,
        number: u8,
        writing: bool,
        what: impl FnOnce(&mut Self, Opened) -> Checked,
    ) -> Checked {
        let node = self.file(number);
        // The kernel reads and writes regular files only through the store.
        if self.kind(node) != Some(Kind::File) {
            return Ok(());
        }
        let open =
            self.opened.iter().copied().find(|open| open.node == node && open.writing >= writing);
        if let Some(open) = open {
            return what(self, open);
        }
        let before = self.opened.len();
        let Some(open) = self.open(node, writing)? else {
            return Ok(());
        };
        let result = what(self, open);
        // A file opened before stays open every other time.
        if before < self.opened.len() && number.is_multiple_of(2) {
            self.opened.pop();
            self.close(open);
        }
        result
    }

    fn write(&mut self, open: Opened, at: u64, bytes: &[u8]) -> Checked {
        let subject = self.subject.store().write(open.node.subject, open.handle, at, bytes);
        let written = match subject {
            Ok(count) if count < bytes.len() && self.rules.small => count,
            _ => bytes.len(),
        };
        let written = self.both(subject, || {
            self.model.write(open.node.model, Handle(0), at, &bytes[..written])
        })?;
        match written {
            Some((subject, model)) if subject != model => {
                Err(format!("{subject} bytes written, expected {model}"))
            }
            _ => self.attributes(open.node),
        }
    }

    fn allocate(&mut self, open: Opened, mode: u32, at: u64, length: u64) -> Checked {
        let subject =
            self.subject.store().allocate(open.node.subject, open.handle, mode, at, length);
        if self.rules.no_room_beyond && mode & 1 != 0 && subject == Err(Errno::OPNOTSUPP) {
            return Ok(());
        }
        self.both(subject, || self.model.allocate(open.node.model, Handle(0), mode, at, length))?;
        self.attributes(open.node)?;
        self.compare_range(open.node, open.handle, at.saturating_sub(100), length + 5000)
    }

    /// Checks a seek by its meaning: the skipped range contains only zeros.
    fn seek(&mut self, open: Opened, at: u64, what: Seek) -> Checked {
        let subject = self.subject.store().seek(open.node.subject, open.handle, at, what);
        if self.kind(open.node) != Some(Kind::File) {
            return Ok(());
        }
        let size = self.model.attributes(open.node.model).map_err(|errno| errno.to_string())?.size;
        let data = self.model.data(open.node.model, at);
        match (subject, what) {
            (Err(Errno::NXIO), _) if at >= size => Ok(()),
            (Err(Errno::NXIO), Seek::Data) if data.is_none() => Ok(()),
            (Ok(found), _)
                if found < at || found >= size + u64::from(what == Seek::Hole) || at >= size =>
            {
                Err(format!("seek returns {found}, beyond the size {size}"))
            }
            (Ok(found), Seek::Data) if data.is_some_and(|data| found > data) => {
                Err(format!("seek returns {found}, but there is data at {data:?}"))
            }
            (Ok(found), Seek::Hole)
                if self
                    .model
                    .data(open.node.model, found)
                    .is_some_and(|data| data < (found / 512 + 1) * 512) =>
            {
                Err(format!("seek for a hole returns {found}, where there is data"))
            }
            (Ok(_), _) => Ok(()),
            (Err(errno), _) => Err(format!("refused: {errno}")),
        }
    }

    fn sync(&mut self, node: Both, data: bool) -> Checked {
        if !matches!(self.kind(node), Some(Kind::File | Kind::Directory)) {
            return Ok(());
        }
        let store = self.subject.store();
        let open = self.opened.iter().find(|open| open.node == node).map(|open| open.handle);
        let handle = open
            .map_or_else(|| store.open(node.subject, 0), Ok)
            .map_err(|errno| format!("open: {errno}"))?;
        let result = store.sync(node.subject, handle, data);
        if open.is_none() {
            store.release(node.subject, handle);
        }
        result.map_err(|errno| format!("refused: {errno}"))
    }

    fn begin(&mut self, directory: Both, portion: u8) -> Checked {
        if self.kind(directory) != Some(Kind::Directory) || self.listings.len() >= MOST {
            return Ok(());
        }
        let handle = self
            .subject
            .store()
            .open(directory.subject, 0)
            .map_err(|errno| format!("open: {errno}"))?;
        let mut listing = Listing::new(directory, handle, self.listed(directory));
        self.whether_removed(&mut listing);
        let result = listing.portion(self.subject.store(), portion);
        self.listings.push(listing);
        result.map(|_| ())
    }

    fn finish(&mut self, number: u8, portion: u8) -> Checked {
        if self.listings.is_empty() {
            return Ok(());
        }
        let mut listing = self.listings.remove(usize::from(number) % self.listings.len());
        self.whether_removed(&mut listing);
        let result = listing.finish(self.subject.store(), portion);
        self.subject.store().release(listing.node.subject, listing.handle);
        result.map(|_| ())
    }

    fn xattr(&self, node: Both, name: &[u8]) -> Checked {
        match self.both(self.subject.store().xattr(node.subject, name), || {
            self.model.xattr(node.model, name)
        })? {
            Some((subject, model)) if subject != model => {
                Err(format!("is {subject:?}, expected {model:?}"))
            }
            _ => Ok(()),
        }
    }

    fn set_xattr(&mut self, operation: &Operation) -> Checked {
        let Operation::SetXattr { node, name, length, mode } = *operation else {
            return Ok(());
        };
        let (node, name) = (self.node(node), operations::xattr_name(name));
        let value = operations::bytes(1, length, name[name.len() - 1]);
        let set = self.subject.store().set_xattr(node.subject, &name, &value, mode);
        if let (Some(room), Err(Errno::NOSPC)) = (self.rules.xattr_room, set) {
            let (bytes, count) = self.model.xattr_bytes(node.model);
            // Names and values are each rounded up to 4 bytes.
            if bytes + name.len() + value.len() + (count + 1) * (16 + 6) > room {
                return Ok(());
            }
        }
        self.both(set, || self.model.set_xattr(node.model, &name, &value, mode))?;
        self.attributes(node)
    }

    fn remove_xattr(&mut self, node: Both, name: &[u8]) -> Checked {
        let removed = self.subject.store().remove_xattr(node.subject, name);
        if removed == Err(Errno::NOSPC) {
            return Err("failed with ENOSPC".to_owned());
        }
        self.both(removed, || self.model.remove_xattr(node.model, name))?;
        self.attributes(node)
    }
}
