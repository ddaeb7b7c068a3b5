//! Compares the complete trees of both stores.

use std::collections::BTreeSet;

use kumihimo_store::{Errno, Handle, Kind, Seek, Store};

use super::checked::{Both, Checked};
use super::listing::Listing;
use super::{Pair, Subject};

/// Bytes read at a time.
const PIECE: u64 = 1 << 16;

impl<S: Subject> Pair<S> {
    /// Compares names, attributes, contents, targets and xattrs of all inodes. The inodes found
    /// stay referenced afterwards.
    pub(super) fn walk(&mut self) -> Checked {
        let mut waiting = vec![self.held[0].node];
        let mut seen = BTreeSet::new();
        while let Some(directory) = waiting.pop() {
            if !seen.insert(directory) {
                return Err(format!("{directory:?} is its own parent"));
            }
            self.inode(directory)?;
            self.list(directory, 7)?;
            for (name, _) in self.model.names(directory.model) {
                let node = self.find(directory, &name)?;
                match self.model.kind(node.model) {
                    Some(Kind::Directory) => waiting.push(node),
                    _ => self.inode(node)?,
                }
            }
        }
        // A file without a name that is still open must be intact, too.
        for node in self.held.iter().map(|held| held.node).collect::<Vec<_>>() {
            self.inode(node)?;
        }
        Ok(())
    }

    /// Looks up a name that must exist in both stores.
    pub(super) fn find(&mut self, directory: Both, name: &[u8]) -> Checked<Both> {
        let quoted = || String::from_utf8_lossy(name).into_owned();
        let model = self
            .model
            .lookup(directory.model, name)
            .map_err(|errno| format!("{:?} in the model: {errno}", quoted()))?;
        let subject = match self.subject.store().lookup(directory.subject, name) {
            Ok(subject) => subject,
            Err(errno) => {
                self.model.forget(model.attributes.node, 1);
                return Err(format!("{:?} is not found: {errno}", quoted()));
            }
        };
        self.entry(&subject, &model, false).map_err(|what| format!("{:?}: {what}", quoted()))?;
        Ok(Both { model: model.attributes.node, subject: subject.attributes.node })
    }

    /// Compares a whole listing, read in portions.
    pub(super) fn list(&mut self, directory: Both, portion: u8) -> Checked {
        if self.model.kind(directory.model) != Some(Kind::Directory) {
            return Ok(());
        }
        let handle = self
            .subject
            .store()
            .open(directory.subject, 0)
            .map_err(|errno| format!("open: {errno}"))?;
        let mut listing = Listing::new(directory, handle, self.listed(directory));
        self.whether_removed(&mut listing);
        let result = listing.finish(self.subject.store(), portion);
        self.subject.store().release(directory.subject, handle);
        for (name, node, kind) in result? {
            let quoted = String::from_utf8_lossy(&name).into_owned();
            let attributes = |errno: Errno| format!("{quoted:?}: {errno}");
            let found = self.model.lookup(directory.model, &name).map_err(attributes)?.attributes;
            self.model.forget(found.node, 1);
            if kind.is_some_and(|kind| kind != found.kind) {
                return Err(format!("{quoted:?} is listed as {kind:?}, expected {:?}", found.kind));
            }
            if self
                .held
                .iter()
                .any(|held| held.node.model == found.node && held.node.subject != node)
            {
                return Err(format!("{quoted:?} is listed as inode {node:?}, which is wrong"));
            }
        }
        Ok(())
    }

    /// Informs `listing` if its directory was removed.
    pub(super) fn whether_removed(&self, listing: &mut Listing) {
        if self.model.attributes(listing.node.model).is_ok_and(|attributes| attributes.links == 0) {
            listing.removed();
        }
    }

    /// Names that a listing must contain.
    pub(super) fn listed(&self, directory: Both) -> BTreeSet<Vec<u8>> {
        let mut names: BTreeSet<_> =
            self.model.names(directory.model).into_iter().map(|(name, _)| name).collect();
        if self.model.attributes(directory.model).is_ok_and(|attributes| attributes.links > 0) {
            names.extend([b".".to_vec(), b"..".to_vec()]);
        }
        names
    }

    /// Compares attributes, xattrs and contents of one inode.
    fn inode(&self, node: Both) -> Checked {
        let store = self.subject.store();
        let wrong = |what: String| format!("{node:?}: {what}");
        let Some((subject, model)) = self
            .both(store.attributes(node.subject), || self.model.attributes(node.model))
            .map_err(wrong)?
        else {
            return Ok(());
        };
        self.same(&subject, &model).map_err(wrong)?;
        self.same_xattrs(node).map_err(wrong)?;
        match model.kind {
            Kind::File => self.same_contents(node, model.size).map_err(wrong),
            Kind::Symlink => {
                match self
                    .both(store.read_link(node.subject), || self.model.read_link(node.model))
                    .map_err(wrong)?
                {
                    Some((subject, model)) if subject != model => {
                        Err(wrong(format!("the target is {subject:?}, expected {model:?}")))
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    pub(super) fn same_xattrs(&self, node: Both) -> Checked {
        let store = self.subject.store();
        let Some((subject, model)) =
            self.both(store.xattrs(node.subject), || self.model.xattrs(node.model))?
        else {
            return Ok(());
        };
        let sorted = |names: &[u8]| {
            let mut names: Vec<_> =
                names.split_inclusive(|byte| *byte == 0).map(<[u8]>::to_vec).collect();
            names.sort();
            names
        };
        let (subject, model) = (sorted(&subject), sorted(&model));
        if subject != model {
            return Err(format!("xattrs {subject:?}, expected {model:?}"));
        }
        for name in model {
            let name = &name[..name.len() - 1];
            match self
                .both(store.xattr(node.subject, name), || self.model.xattr(node.model, name))?
            {
                Some((subject, model)) if subject != model => {
                    return Err(format!("xattr {name:?} is {subject:?}, expected {model:?}"));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Compares file contents. A file may be sparse and terabytes long, so only the beginning, the
    /// end, and the data regions of either store are read.
    fn same_contents(&self, node: Both, size: u64) -> Checked {
        let store = self.subject.store();
        let open = self.opened.iter().find(|open| open.node == node).map(|open| open.handle);
        let handle = match open {
            Some(handle) => handle,
            None => store.open(node.subject, 0).map_err(|errno| format!("open: {errno}"))?,
        };
        let result = self.compare_contents(node, handle, size);
        if open.is_none() {
            store.release(node.subject, handle);
        }
        result
    }

    fn compare_contents(&self, node: Both, handle: Handle, size: u64) -> Checked {
        let (mut at, mut pieces) = (0, 0);
        while at < size {
            let length = PIECE.min(size - at);
            self.compare_range(node, handle, at, length)?;
            at += length;
            let theirs = match self.subject.store().seek(node.subject, handle, at, Seek::Data) {
                Ok(data) if data < at || data >= size => {
                    return Err(format!("seek for data from {at} returns {data}"));
                }
                Ok(data) => Some(data),
                Err(Errno::NXIO) => None,
                Err(errno) => return Err(format!("seek for data from {at}: {errno}")),
            };
            let ours = self.model.data(node.model, at);
            if ours.is_some_and(|ours| theirs.is_none_or(|theirs| theirs > ours)) {
                return Err(format!(
                    "seek from {at} returns {theirs:?}, but there is data at {ours:?}"
                ));
            }
            at = theirs.unwrap_or(size);
            pieces += 1;
            // Allocated regions of zeros may be long, too.
            if pieces > 64 {
                at = ours.unwrap_or(size);
            }
        }
        self.compare_range(node, handle, size.saturating_sub(5000), 6000)
    }

    pub(super) fn compare_range(
        &self,
        node: Both,
        handle: Handle,
        at: u64,
        length: u64,
    ) -> Checked {
        let length = usize::try_from(length).expect("a piece");
        let (mut subject, mut model) = (vec![0xaa; length], vec![0xaa; length]);
        let read = self.subject.store().read(node.subject, handle, at, &mut subject);
        match self.both(read, || self.model.read(node.model, Handle(0), at, &mut model))? {
            Some((subject, model)) if subject != model => {
                return Err(format!("{subject} bytes read at {at}, expected {model}"));
            }
            _ => {}
        }
        if subject == model {
            return Ok(());
        }
        match subject.iter().zip(&model).position(|(subject, model)| subject != model) {
            Some(byte) => Err(format!(
                "byte {} is {:#x}, expected {:#x} (read of {length} at {at})",
                at + byte as u64,
                subject[byte],
                model[byte]
            )),
            None => Ok(()),
        }
    }
}
