//! The part of a link that is alike on both sides: its socket, its regions, its entries in the
//! index and in the resource table.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};

use kumihimo_runtime::lock;

use crate::error::Error;
use crate::link::link_index::{IndexEntry, IndexedLink};
use crate::link::link_poller::LinkHandler;
use crate::link::socket::Link;
use crate::quota::LinkAccount;
use crate::region::received_regions::ReceivedRegions;
use crate::region::sealed::Region;
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

    /// One side of a link that charges this account for what the other side passes.
    pub(crate) fn charging(account: LinkAccount) -> Endpoint {
        Endpoint { regions: ReceivedRegions::of(account), ..Endpoint::default() }
    }

    /// A region that a request or reply names: see [`ReceivedRegions::get`].
    pub(crate) fn region(&self, id: u64, take: bool) -> Result<Region, Error> {
        self.regions.get(id, take, || {
            if let Some(link) = self.link.get() {
                link.look();
            }
        })
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
    /// The other side violates the protocol or exceeds a quota.
    fn violated(&self, _why: &Error) {}
}

impl<T: HasEndpoint> LinkHandler for T {
    fn rung(&self) {
        if let Some(index_entry) = &*lock(&self.endpoint().index_entry) {
            index_entry.wake();
        }
    }

    fn region_passed(&self, id: u64, fd: OwnedFd, length: u64) -> Result<(), Error> {
        self.endpoint().regions.insert(id, fd, length)
    }

    fn region_forgotten(&self, id: u64) {
        self.endpoint().regions.forget(id);
    }

    fn received_all(&self) {
        self.endpoint().regions.received_all();
    }

    fn violated(&self, why: &Error) {
        HasEndpoint::violated(self, why);
    }

    fn closed(&self, why: Error) {
        HasEndpoint::end_with(self, why);
    }
}
