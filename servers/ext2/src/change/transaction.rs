//! Transactions: changes between two commits.

use kumihimo::sync::{PoisonError, RwLockReadGuard};
use kumihimo_store::Errno;

use crate::Ext2;
use crate::memory::inodes::Inode;
use crate::memory::order::Thing;

/// Why a change stopped early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The change failed.
    Errno(Errno),
    /// The change has modified nothing relevant and must start again after a commit.
    Commit,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Errno(errno)
    }
}

/// Result of a part of a change.
pub type Outcome<T> = Result<T, Stop>;

/// Guard of a running change: while it exists, no commit collects modified data. Locks of inodes
/// are acquired before it and never while it exists. Otherwise the holder of such a lock could wait
/// for a commit, and the commit for this transaction.
pub struct Transaction<'a> {
    _gate: RwLockReadGuard<'a, ()>,
}

/// Maximum number of attempts of a change. After a commit no order is required and everything that
/// rested is free; other changes may still come first occasionally.
const ATTEMPTS: usize = 10;

impl Ext2 {
    /// Executes a change, and executes it again after a commit if it requests one.
    ///
    /// # Errors
    /// `EROFS`, and the errors of the change and of the commit; `ENOSPC` if commits do not help.
    pub(crate) fn modify<R>(
        &self,
        mut change: impl FnMut(&Transaction<'_>) -> Outcome<R>,
    ) -> Result<R, Errno> {
        for _ in 0..ATTEMPTS {
            self.writable()?;
            let transaction =
                Transaction { _gate: self.gate.read().unwrap_or_else(PoisonError::into_inner) };
            match change(&transaction) {
                Ok(result) => return Ok(result),
                Err(Stop::Errno(errno)) => return Err(errno),
                Err(Stop::Commit) => drop(transaction),
            }
            self.commit()?;
        }
        Err(Errno::NOSPC)
    }

    /// Returns whether an order is required for a thing until the next commit is complete.
    pub(crate) fn is_ordered(&self, thing: Thing) -> bool {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).knows(thing)
    }

    /// Requires that `later` reaches the disk after `earlier`.
    pub(crate) fn demand(&self, earlier: Thing, later: Thing) -> Outcome<()> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.demand(earlier, later) { Ok(()) } else { Err(Stop::Commit) }
    }

    /// Requires the order that adding a name to `container` needs: the name may have been in
    /// another container since the last commit.
    pub(crate) fn before_coming(
        &self,
        directory: &Inode,
        name: &[u8],
        container: Thing,
    ) -> Outcome<()> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.comes(directory.number, name, container) { Ok(()) } else { Err(Stop::Commit) }
    }

    /// Records that a name is removed from `container`.
    pub(crate) fn leaves(&self, directory: &Inode, name: &[u8], container: Thing) {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).leaves(
            directory.number,
            name,
            container,
        );
    }
}
