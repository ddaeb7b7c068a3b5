//! The part of a link that is alike on both sides: its socket, its regions, its entries in the
//! index and in the resource table.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};

use kumihimo_runtime::lock;

use crate::error::Error;
use crate::link::link_index::{IndexEntry, IndexedLink};
use crate::link::link_poller::LinkHandler;
use crate::link::socket::Link;
use crate::region::received_regions::ReceivedRegions;
use crate::resource_entry::{self, Inspect, ResourceEntry};

/// One side of a link.
#[derive(Default)]
pub(crate) struct Endpoint {
    pub(crate) link: OnceLock<Link>,
    pub(crate) regions: ReceivedRegions,
    /// Present while VPs poll the link.
    index_entry: Mutex<Option<IndexEntry>>,
    /// Present while the link is in the resource table.
    resource_entry: Mutex<Option<ResourceEntry>>,
}

impl Endpoint {
    /// Begins the link after its handshake: VPs poll `of` from here on, and the resource table
    /// shows it. `keeps_to_cores`: the VPs stay on cores of their own meanwhile.
    pub(crate) fn begin<T: IndexedLink + Inspect + 'static>(
        &self,
        of: &Arc<T>,
        link: Link,
        bit: u32,
        keeps_to_cores: bool,
    ) {
        let _ = self.link.set(link);
        let index_entry = IndexEntry::insert(bit, of.clone(), keeps_to_cores);
        *lock(&self.index_entry) = Some(index_entry);
        let resource_entry = resource_entry::link(of.clone());
        *lock(&self.resource_entry) = Some(resource_entry);
    }

    /// Ends the link.
    pub(crate) fn close(&self, why: &Error) {
        if let Some(link) = self.link.get() {
            link.close(why);
        }
    }

    /// Removes the link from the index and from the resource table.
    pub(crate) fn end(&self) {
        let index_entry = lock(&self.index_entry).take();
        drop(index_entry);
        let resource_entry = lock(&self.resource_entry).take();
        drop(resource_entry);
    }
}

/// A type with an endpoint, which handles the link's events for it.
pub(crate) trait HasEndpoint: Send + Sync {
    fn endpoint(&self) -> &Endpoint;
    /// Ends this side of the link: see [`LinkHandler::closed`].
    fn end_with(&self, why: Error);
}

impl<T: HasEndpoint> LinkHandler for T {
    fn rung(&self) {
        if let Some(index_entry) = &*lock(&self.endpoint().index_entry) {
            index_entry.wake();
        }
    }

    fn region_passed(&self, id: u64, fd: OwnedFd, length: u64) {
        self.endpoint().regions.insert(id, fd, length);
    }

    fn region_forgotten(&self, id: u64) {
        self.endpoint().regions.forget(id);
    }

    fn closed(&self, why: Error) {
        HasEndpoint::end_with(self, why);
    }
}
