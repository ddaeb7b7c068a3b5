//! An inode with references.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use kumihimo::sync::{Mutex, MutexGuard, PoisonError};
use kumihimo_store::Node;

use crate::resolve::Identity;

/// Descriptor of a node. Included in the count of descriptors while it is open.
#[derive(Debug)]
pub struct Descriptor {
    descriptor: OwnedFd,
    open: Arc<AtomicUsize>,
}

impl Descriptor {
    pub fn new(descriptor: OwnedFd, open: &Arc<AtomicUsize>) -> Arc<Descriptor> {
        open.fetch_add(1, Relaxed);
        Arc::new(Descriptor { descriptor, open: Arc::clone(open) })
    }
}

impl AsFd for Descriptor {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.open.fetch_sub(1, Relaxed);
    }
}

/// A name that refers to an inode.
#[derive(Clone, Debug)]
pub struct Place {
    pub directory: Arc<Inode>,
    pub name: Box<[u8]>,
}

impl Place {
    pub fn new(directory: &Arc<Inode>, name: &[u8]) -> Place {
        Place { directory: Arc::clone(directory), name: name.into() }
    }

    pub fn is(&self, directory: &Inode, name: &[u8]) -> bool {
        self.directory.identity == directory.identity && *self.name == *name
    }
}

#[derive(Debug)]
pub struct Inode {
    pub number: Node,
    pub identity: Identity,
    /// True if the descriptor was used since the last scan for descriptors to close.
    pub used: AtomicBool,
    state: Mutex<State>,
}

/// The descriptor or the place is always present, so that the inode can be opened again.
#[derive(Debug)]
pub struct State {
    pub descriptor: Option<Arc<Descriptor>>,
    pub place: Option<Place>,
    /// True if the inode is in the queue of those whose descriptors may be closed.
    pub queued: bool,
}

impl Inode {
    pub fn new(
        number: Node,
        identity: Identity,
        descriptor: Arc<Descriptor>,
        place: Option<Place>,
    ) -> Inode {
        let state = State { descriptor: Some(descriptor), place, queued: false };
        Inode { number, identity, used: AtomicBool::new(true), state: Mutex::new(state) }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Iterative: the default recursive drop would overflow the stack for a deep tree.
impl Drop for Inode {
    fn drop(&mut self) {
        let mut place = self.state().place.take();
        while let Some(Place { directory, .. }) = place {
            place = Arc::into_inner(directory).and_then(|mut last| {
                last.state.get_mut().unwrap_or_else(PoisonError::into_inner).place.take()
            });
        }
    }
}
