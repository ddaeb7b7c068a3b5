//! What both sides of a link have of it, the caller's and the server's, as long as it lives.

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock};

use kumihimo_runtime::lock;

use crate::Error;
use crate::entered::{self, Entered, Shown};
use crate::link::Link;
use crate::looks::{Looked, Place};
use crate::porter::End;
use crate::regions::Regions;

/// What one side has of its link.
#[derive(Default)]
pub(crate) struct Side {
    pub(crate) link: OnceLock<Link>,
    pub(crate) regions: Regions,
    /// As long as it is looked at.
    place: Mutex<Option<Place>>,
    /// Likewise.
    entered: Mutex<Option<Entered>>,
}

impl Side {
    /// The handshake is over: from here on virtual processors look at `of`, on cores that they keep
    /// to where that is wanted, and others see it.
    pub(crate) fn begin<T: Looked + Shown + 'static>(
        &self,
        of: &Arc<T>,
        link: Link,
        bit: u32,
        keeps_to_cores: bool,
    ) {
        let _ = self.link.set(link);
        let place = Place::take(bit, of.clone(), keeps_to_cores);
        *lock(&self.place) = Some(place);
        let entered = entered::link(of.clone());
        *lock(&self.entered) = Some(entered);
    }

    /// Ends the link.
    pub(crate) fn cut(&self, why: &Error) {
        if let Some(link) = self.link.get() {
            link.close(why);
        }
    }

    /// It has ended: nobody looks at it or sees it any more.
    pub(crate) fn end(&self) {
        let place = lock(&self.place).take();
        drop(place);
        let entered = lock(&self.entered).take();
        drop(entered);
    }
}

/// A side of a link, which the porter tells of what concerns both alike.
pub(crate) trait Sided: Send + Sync {
    fn side(&self) -> &Side;
    /// See [`End::gone`].
    fn gone(&self, why: Error);
}

impl<T: Sided> End for T {
    fn rang(&self) {
        if let Some(place) = &*lock(&self.side().place) {
            place.knock();
        }
    }

    fn region(&self, id: u64, fd: OwnedFd, length: u64) {
        self.side().regions.came(id, fd, length);
    }

    fn forgotten(&self, id: u64) {
        self.side().regions.forget(id);
    }

    fn gone(&self, why: Error) {
        Sided::gone(self, why);
    }
}
