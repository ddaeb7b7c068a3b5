//! Registration of descriptors in the epoll set of a VP.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use crate::idle::descriptor_entry::DescriptorEntry;
use crate::idle::poller::Poller;
use crate::kernel_thread::no_events::lock;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::{self, Instance};
use crate::scheduler::vp::Vp;
use crate::upcall::sticky;
use crate::wait::readiness::Source;

impl Source {
    /// Returns the entry, registered in the set of the caller's VP, or earlier in that of another
    /// VP. Returns `None` on a foreign thread, which uses poll(2).
    pub(super) fn register(&self) -> io::Result<Option<&'static DescriptorEntry>> {
        let Some(carrier) = Carrier::current() else { return self.register_elsewhere() };
        let vp = carrier.vp();
        self.register_at(vp).map(Some)
    }

    /// Registers for a caller without a VP. A sticky caller is woken by the VP on which it ran
    /// last.
    #[cold]
    fn register_elsewhere(&self) -> io::Result<Option<&'static DescriptorEntry>> {
        let Some((kt, mp)) = sticky::current() else { return Ok(None) };
        let instance = kt.instance();
        let vp = &instance.vps[instance.open_home(mp)];
        let was_used = vp.poller.is_used();
        let entry = self.register_at(vp)?;
        if !was_used || vp.is_retired() {
            // The VP may sleep on its futex, or be parked, without its descriptors.
            vp.idle.wake();
        }
        Ok(Some(entry))
    }

    fn register_at(&self, vp: &Vp) -> io::Result<&'static DescriptorEntry> {
        if let Some(entry) = self.entry.get() {
            if !vp.instance().is_polled_at(entry.home.load(Ordering::Relaxed)) {
                entry.move_in(&vp.poller, self.fd, vp.instance())?;
            }
            return Ok(entry);
        }
        let entry = DescriptorEntry::take();
        // Published only after it is in a set, because readers rely on its edges.
        if let Err(e) = entry.move_in(&vp.poller, self.fd, vp.instance()) {
            entry.give_back();
            return Err(e);
        }
        if self.entry.set(entry).is_err() {
            // Another VP registered it meanwhile.
            vp.poller.remove(self.fd);
            entry.give_back();
        }
        Ok(self.entry.get().copied().expect("set just now, by the caller or another"))
    }
}

impl DescriptorEntry {
    /// Adds the descriptor to the set of `poller`, unless another VP of this instance was faster.
    /// An entry of an instance that has ended is added again: its set is closed. A descriptor in
    /// the set of a retired VP moves. An edge between the two calls is not lost: the addition
    /// reports what is ready as a further edge.
    fn move_in(&'static self, poller: &Poller, fd: RawFd, instance: &Instance) -> io::Result<()> {
        let _alone = lock(&self.waiters);
        let home = self.home.load(Ordering::Relaxed);
        if instance.is_polled_at(home) || home == poller.home {
            return Ok(());
        }
        if let Some(retired) = instance.poller_at(home) {
            retired.remove(fd);
            // In no set, if the addition fails.
            self.home.store(0, Ordering::Relaxed);
        }
        poller.add(fd, self.token())?;
        self.home.store(poller.home, Ordering::Relaxed);
        Ok(())
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let Some(&entry) = self.entry.get() else { return };
        let home = entry.home.load(Ordering::Relaxed);
        instance::visit(|instance| {
            if let Some(poller) = instance.and_then(|i| i.poller_at(home)) {
                poller.remove(self.fd);
            }
        });
        entry.give_back();
    }
}

impl Instance {
    /// Returns the poller with that `home`, if it belongs to this instance.
    fn poller_at(&self, home: u32) -> Option<&Poller> {
        self.vps.get((home & 0x3ff) as usize).map(|vp| &vp.poller).filter(|p| p.home == home)
    }

    /// Whether the poller with that `home` belongs to a VP of this instance that is not retired.
    fn is_polled_at(&self, home: u32) -> bool {
        self.poller_at(home).is_some() && !self.vps[(home & 0x3ff) as usize].is_retired()
    }
}
