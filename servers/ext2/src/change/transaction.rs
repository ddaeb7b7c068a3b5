//! Changes: what happens between two commits.

use kumihimo::sync::{PoisonError, RwLockReadGuard};
use kumihimo_store::Errno;

use crate::Ext2;
use crate::memory::inodes::Inode;
use crate::memory::order::Thing;

/// Why an operation did not come to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// For good.
    Errno(Errno),
    /// It has changed nothing that matters yet, and is to begin again after a commit.
    Commit,
}

impl From<Errno> for Stop {
    fn from(errno: Errno) -> Stop {
        Stop::Errno(errno)
    }
}

/// What a part of a change gives.
pub type Outcome<T> = Result<T, Stop>;

/// While it is there, no commit takes what is modified. Locks of inodes are taken before, never
/// while it is there: a holder of one of them may wait for the commit that waits for us.
pub struct Transaction<'a> {
    _gate: RwLockReadGuard<'a, ()>,
}

/// How often a change begins again. After one commit nothing is demanded any more, and all that
/// rested is free; others may be faster now and then.
const ATTEMPTS: usize = 10;

impl Ext2 {
    /// Carries out a change, again after a commit if it asks for one.
    ///
    /// # Errors
    /// `EROFS`, those of the change and of the commit; `ENOSPC` if commits did not help.
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

    /// Whether anything is demanded of a thing before the next commit is over.
    pub(crate) fn is_ordered(&self, thing: Thing) -> bool {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).knows(thing)
    }

    /// Demands that `later` reaches the disk after `earlier`.
    pub(crate) fn demand(&self, earlier: Thing, later: Thing) -> Outcome<()> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.demand(earlier, later) { Ok(()) } else { Err(Stop::Commit) }
    }

    /// Demands what the disk needs before a name comes into `container`, where it may have been
    /// elsewhere since the last commit.
    pub(crate) fn before_coming(
        &self,
        directory: &Inode,
        name: &[u8],
        container: Thing,
    ) -> Outcome<()> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        if order.comes(directory.number, name, container) { Ok(()) } else { Err(Stop::Commit) }
    }

    /// A name is removed from `container`.
    pub(crate) fn leaves(&self, directory: &Inode, name: &[u8], container: Thing) {
        self.order.lock().unwrap_or_else(PoisonError::into_inner).leaves(
            directory.number,
            name,
            container,
        );
    }
}
