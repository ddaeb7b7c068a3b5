//! rename(2).

use std::collections::HashSet;

use kumihimo::sync::{Arc, PoisonError};
use kumihimo_store::{Errno, Kind, Node};

use crate::Ext2;
use crate::change::transaction::{Outcome, Stop, Transaction};
use crate::layout::dirent;
use crate::memory::cache::Class;
use crate::memory::inodes::{Inode, ROOT};
use crate::memory::order::Thing;
use crate::operations::directory::{Near, Place};
use crate::operations::names::{Locked, MOST_LINKS};

/// Returns whether two versions of a block differ in at most one sector.
fn is_one_sector(before: &[u8], after: &[u8]) -> bool {
    before
        .chunks(dirent::SECTOR)
        .zip(after.chunks(dirent::SECTOR))
        .filter(|(before, after)| before != after)
        .count()
        <= 1
}

/// Participants of a rename: two directories, which may be the same, the inode, and the inode that
/// it replaces.
struct Parts<'a> {
    from: &'a Arc<Inode>,
    to: &'a Arc<Inode>,
    name: &'a [u8],
    new_name: &'a [u8],
    inode: Arc<Inode>,
    replaced: Option<Arc<Inode>>,
}

impl Parts<'_> {
    fn same_directory(&self) -> bool {
        Arc::ptr_eq(self.from, self.to)
    }
}

impl Ext2 {
    pub(crate) fn rename_name(
        &self,
        from: Node,
        name: &[u8],
        to: Node,
        new_name: &[u8],
        keep: bool,
    ) -> Result<(), Errno> {
        self.throttle()?;
        let (from, to) = (self.held_directory(from)?, self.held_directory(to)?);
        loop {
            let inode = self.look_up(&from, name)?.ok_or(Errno::NOENT)?;
            let replaced = self.look_up(&to, new_name)?;
            if keep && replaced.is_some() {
                return Err(Errno::EXIST);
            }
            let parts = Parts { from: &from, to: &to, name, new_name, inode, replaced };
            // A removed directory is no longer part of the tree.
            self.changeable_names(&to, false)?;
            // The tree must not change while a directory is moved within it.
            let moves = parts.inode.state().kind() == Kind::Directory && !parts.same_directory();
            let _tree = moves.then(|| self.tree.lock().unwrap_or_else(PoisonError::into_inner));
            if moves && self.is_above(&parts.inode, &to)? {
                return Err(Errno::INVAL);
            }
            match self.rename_parts(&parts) {
                // A name changed before its directory was locked: try again.
                Err(Errno::AGAIN) => {}
                Err(errno) => return Err(errno),
                Ok(()) => {
                    if let Some(replaced) = &parts.replaced {
                        self.end_if_unused(replaced);
                    }
                    return Ok(());
                }
            }
        }
    }

    /// Returns whether `above` equals `directory` or is an ancestor of it.
    fn is_above(&self, above: &Inode, directory: &Arc<Inode>) -> Result<bool, Errno> {
        let mut at = Arc::clone(directory);
        // On a damaged disk the parents may form a cycle.
        let mut seen = HashSet::new();
        while seen.insert(at.number) {
            if at.number == above.number {
                return Ok(true);
            }
            if at.number == ROOT {
                return Ok(false);
            }
            let parent = self.parent(&at)?.0;
            at = self.inode(parent)?;
            if at.state().kind() != Kind::Directory {
                self.complaints.damage(format_args!(
                    "inode {parent}: a directory's '..' leads to it, but it is not a directory"
                ));
                return Err(Errno::IO);
            }
        }
        self.complaints.damage(format_args!(
            "inode {}: its parent directories form a cycle",
            directory.number
        ));
        Err(Errno::IO)
    }

    fn rename_parts(&self, parts: &Parts<'_>) -> Result<(), Errno> {
        // All participating directories, in ascending order of their numbers.
        let mut directories: Vec<&Arc<Inode>> = vec![parts.from, parts.to, &parts.inode];
        directories.extend(&parts.replaced);
        directories.retain(|inode| inode.state().kind() == Kind::Directory);
        directories.sort_by_key(|inode| inode.number);
        directories.dedup_by_key(|inode| inode.number);
        let mut locks: Vec<(u32, Locked<'_>)> = Vec::new();
        for inode in directories {
            locks.push((inode.number, self.lock_names(inode)?));
        }
        self.modify(|transaction| self.rename_locked(transaction, parts, &mut locks))
    }

    fn rename_locked(
        &self,
        transaction: &Transaction<'_>,
        parts: &Parts<'_>,
        locks: &mut [(u32, Locked<'_>)],
    ) -> Outcome<()> {
        let Parts { from, to, name, new_name, inode, replaced } = parts;
        self.changeable_names(from, true)?;
        self.changeable_names(to, replaced.is_some())?;
        let of = |locks: &[(u32, Locked<'_>)], directory: &Inode, name: &[u8]| {
            let index = locks
                .iter()
                .find(|(number, _)| *number == directory.number)
                .and_then(|(_, lock)| lock.as_deref());
            self.find_name(directory, index, name)
        };
        let old = of(locks, from, name)?.ok_or(Errno::NOENT)?;
        let target = of(locks, to, new_name)?;
        if old.number != inode.number
            || target.map(|target| target.number) != replaced.as_ref().map(|inode| inode.number)
        {
            return Err(Errno::AGAIN.into());
        }
        self.removable(old)?;
        if target.is_some_and(|target| target.number == old.number) {
            // Both names lead to the same inode: rename(2) does nothing.
            return Ok(());
        }
        let kind = inode.state().kind();
        if let (Some(target), Some(replaced)) = (target, replaced) {
            self.removable(target)?;
            self.check_replaced(kind, replaced)?;
        }
        let moved = kind == Kind::Directory && !parts.same_directory();
        if moved && target.is_none() && to.state().fields.links >= MOST_LINKS {
            return Err(Errno::MLINK.into());
        }
        // The `..` entry of the moved directory.
        let above = if moved { Some(self.parent(inode)?) } else { None };
        let new = self.put_new_name(
            transaction,
            parts,
            kind,
            (old, target, above.map(|above| above.1)),
            locks,
        )?;
        let now = (self.now)();
        self.change_inode(inode, |state| {
            state.fields.ctime = now;
            state.new_names.push(new);
        });
        if let Some(replaced) = replaced {
            if kind == Kind::Directory {
                self.lose_directory(to, replaced)
            } else {
                self.lose_name(replaced, 1)
            }
            replaced.state().taken_over.push(new);
        }
        if let Some((_, block, at)) = above {
            self.cache.modify(block, Class::Directory, |bytes| {
                dirent::set_target(bytes, at, to.number, bytes[at + 7])
            })?;
            self.change_inode(from, |state| {
                state.fields.links = state.fields.links.saturating_sub(1).max(2)
            });
            self.change_inode(to, |state| state.fields.links += 1);
        }
        Ok(())
    }

    fn check_replaced(&self, kind: Kind, replaced: &Arc<Inode>) -> Result<(), Errno> {
        match (kind == Kind::Directory, replaced.state().kind() == Kind::Directory) {
            (true, false) => return Err(Errno::NOTDIR),
            (false, true) => return Err(Errno::ISDIR),
            (false, false) => return Ok(()),
            (true, true) => {}
        }
        if self.is_empty(replaced)? { Ok(()) } else { Err(Errno::NOTEMPTY) }
    }

    /// Writes the new name and removes the old name, after requiring the necessary order. Returns
    /// the unit with which the new name is written. `above` is a block that is modified afterwards.
    /// All blocks are first held in memory, because a rename that fails midway would leave two
    /// names or none.
    fn put_new_name(
        &self,
        transaction: &Transaction<'_>,
        parts: &Parts<'_>,
        kind: Kind,
        (old, target, above): (Place, Option<Place>, Option<u32>),
        locks: &mut [(u32, Locked<'_>)],
    ) -> Outcome<Thing> {
        let Parts { from, to, name, new_name, inode, .. } = parts;
        let at =
            |number: u32| locks.iter().position(|(other, _)| *other == number).ok_or(Errno::IO);
        let (of_from, of_to) = (at(from.number)?, at(to.number)?);
        let index =
            |locks: &mut [(u32, Locked<'_>)], at: usize| locks[at].1.take().ok_or(Errno::IO);
        let mut to_index = index(locks, of_to)?;
        // The index must return to its lock in every case.
        let outcome = (|| {
            let near = match parts.same_directory() {
                false => Near::Any,
                // A block with both names is written once per commit, before everything else
                // required of it. If the block already has requirements, the new name goes to
                // another block.
                true if kind != Kind::Directory
                    && !inode.state().born
                    && self.is_ordered(Thing::Block(old.block)) =>
                {
                    Near::Not(old.logical)
                }
                true => Near::Best(old.logical),
            };
            let gap = match target {
                Some(_) => None,
                None => match self.find_gap(transaction, to, &mut to_index, new_name, near) {
                    // After a commit, the same block may have space.
                    Err(Stop::Errno(Errno::NOSPC)) if matches!(near, Near::Not(_)) => {
                        return Err(Stop::Commit);
                    }
                    other => Some(other?),
                },
            };
            let block = target.map(|target| target.block).or(gap.map(|gap| gap.block)).unwrap_or(0);
            let (new, old_in) = (self.container(to, block), self.container(from, old.block));
            let both = new == old_in && new == Thing::Block(block) && !inode.state().born;
            if both && self.is_ordered(new) {
                // The block's other changes must not reach the disk as early as both names must.
                return Err(Stop::Commit);
            }
            let clean = if both { self.cache.peek_clean(block) } else { None };
            let new = if both { Thing::Both(block) } else { new };
            for block in [block, old.block].into_iter().chain(above) {
                self.cache.hold(block, Class::Directory)?;
            }
            if target.is_none() {
                self.before_coming(to, new_name, new)?;
            }
            self.before_rename(parts, kind, new, old_in)?;
            self.leaves(from, name, old_in);
            match (target, gap) {
                (Some(target), _) => {
                    self.lead(transaction, to, &mut to_index, target, (inode.number, kind))?
                }
                (None, Some(gap)) => self.put_name(
                    transaction,
                    to,
                    &mut to_index,
                    gap,
                    (new_name, inode.number, kind),
                )?,
                (None, None) => return Err(Stop::Errno(Errno::IO)),
            }
            let bytes: Option<Arc<[u8]>> =
                both.then(|| self.cache.read(block, |bytes| bytes.into())).transpose()?;
            Ok((new, bytes.map(|bytes| (block, clean, bytes))))
        })();
        let taken = match outcome.is_ok() && parts.same_directory() {
            true => self.take_name(transaction, from, &mut to_index, old, name),
            false => Ok(()),
        };
        *locks[of_to].1 = Some(to_index);
        let (new, both) = outcome?;
        taken?;
        if !parts.same_directory() {
            let mut from_index = index(locks, of_from)?;
            let taken = self.take_name(transaction, from, &mut from_index, old, name);
            *locks[of_from].1 = Some(from_index);
            taken?;
        }
        let Some((block, clean, with_both)) = both else { return Ok(new) };
        let one = |clean: &[u8]| self.cache.read(block, |bytes| is_one_sector(clean, bytes));
        if clean.map_or(Ok(false), |clean| one(&clean))? {
            // The disk writes the difference atomically, so the version with both names is not
            // needed.
            return Ok(Thing::Block(block));
        }
        self.order.lock().unwrap_or_else(PoisonError::into_inner).both.insert(block, with_both);
        Ok(new)
    }

    /// Requires the order of a rename: the new name before the removal of the old one. A replaced
    /// inode is deleted last, but a replaced directory, which is empty, first.
    fn before_rename(&self, parts: &Parts<'_>, kind: Kind, new: Thing, old: Thing) -> Outcome<()> {
        let inode = &parts.inode;
        let born = inode.state().born;
        self.before_name(inode, new)?;
        if let Some(replaced) = &parts.replaced {
            let (was_born, links) = {
                let state = replaced.state();
                (state.born, state.fields.links)
            };
            if !was_born {
                // A name on the disk must not lead to an inode that is not on the disk.
                if born {
                    return Err(Stop::Commit);
                }
                if kind == Kind::Directory {
                    self.before_end(replaced)?;
                    self.demand(Thing::Inode(replaced.number), new)?;
                } else if links <= 1 {
                    self.demand(Thing::Shelter, new)?;
                    self.replaced(replaced.number)?;
                } else {
                    self.before_removal(replaced, new)?;
                }
            }
        }
        if !born && new != old {
            self.demand(new, old)?;
            self.before_other_names(inode, old)?;
        }
        Ok(())
    }

    fn before_other_names(&self, inode: &Inode, old: Thing) -> Outcome<()> {
        let names = inode.state().new_names.clone();
        names.into_iter().filter(|name| *name != old).try_for_each(|name| self.demand(name, old))
    }
}
