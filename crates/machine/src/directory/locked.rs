//! Locks of entries that are held only for an operation.

use std::ops::Deref;
use std::os::fd::AsFd;

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

/// An open entry, whose lock is released with this value. Closing the descriptor is not enough: a
/// child that another thread forks in between has a copy of it, and the lock belongs to all
/// copies (flock(2)). A number that was only tested would then stay taken until the child ends.
#[must_use]
pub(crate) struct Locked<Entry: AsFd>(Option<Entry>);

impl<Entry: AsFd> Locked<Entry> {
    /// Never blocks.
    ///
    /// # Errors
    /// [`Errno::WOULDBLOCK`] if another process has the lock.
    pub(crate) fn alone(entry: Entry) -> Result<Self, Errno> {
        flock(&entry, FlockOperation::NonBlockingLockExclusive).map(|()| Locked(Some(entry)))
    }

    /// A lock that others may share. Otherwise as [`alone`](Self::alone).
    pub(crate) fn shared(entry: Entry) -> Result<Self, Errno> {
        flock(&entry, FlockOperation::NonBlockingLockShared).map(|()| Locked(Some(entry)))
    }

    /// Returns whether the lock excludes all others from now on. If not, it may be lost.
    pub(crate) fn excludes_others(&self) -> bool {
        flock(&**self, FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Returns the entry, which stays locked until its last copy is closed.
    pub(crate) fn stay(mut self) -> Entry {
        self.0.take().expect("the entry is taken once, here")
    }
}

impl<Entry: AsFd> Deref for Locked<Entry> {
    type Target = Entry;

    fn deref(&self) -> &Entry {
        self.0.as_ref().expect("the entry is taken only with this value")
    }
}

impl<Entry: AsFd> Drop for Locked<Entry> {
    fn drop(&mut self) {
        if let Some(entry) = &self.0 {
            let _ = flock(entry, FlockOperation::Unlock);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::OwnedFd;
    use std::path::Path;

    use super::*;

    /// The entry's locks, as another process sees them.
    fn other(name: &Path) -> Result<(), Errno> {
        Locked::alone(File::open(name).expect("the entry exists")).map(drop)
    }

    #[test]
    fn a_copy_of_the_descriptor_keeps_no_lock() {
        let name = std::env::temp_dir().join(format!("kumihimo-locked-{}", std::process::id()));
        let entry = OwnedFd::from(File::create(&name).expect("an entry"));
        // What a child has that is forked now.
        let copy = entry.try_clone().expect("a descriptor");
        let held = Locked::alone(entry).expect("a free lock");
        assert_eq!(other(&name), Err(Errno::WOULDBLOCK));
        drop(held);
        assert_eq!(other(&name), Ok(()), "released, although the copy is open");

        let held = Locked::shared(copy.try_clone().expect("a descriptor")).expect("a free lock");
        assert!(held.excludes_others());
        let stays = held.stay();
        assert_eq!(other(&name), Err(Errno::WOULDBLOCK));
        drop((stays, copy));
        assert_eq!(other(&name), Ok(()));
        std::fs::remove_file(&name).expect("the entry exists");
    }
}
