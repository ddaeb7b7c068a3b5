//! Registration of descriptors in the epoll set of a VP.

use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::Ordering;

use crate::idle::descriptor_entry::DescriptorEntry;
use crate::idle::poller::Poller;
use crate::kernel_thread::no_events::{NoEvents, lock};
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::{self, Instance};
use crate::scheduler::vp::Vp;
use crate::upcall::sticky;
use crate::wait::process_poller;
use crate::wait::readiness::{self, Source};

impl Source {
    /// Returns the entry, registered in the set of the caller's VP, or earlier in that of another
    /// VP. Returns `None` on a foreign thread, which uses poll(2).
    pub(super) fn register(&self) -> io::Result<Option<&'static DescriptorEntry>> {
        // A caller that has lost its VP in the kernel gets one first: it is about to wait as a
        // microprocess, and not in poll(2).
        let Some(carrier) = Carrier::regain() else { return self.register_elsewhere() };
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

    /// As [`register`](Source::register) for a future. A foreign thread has no set, so there the
    /// process's poller has the descriptor.
    pub(super) fn register_for_future(&self) -> io::Result<&'static DescriptorEntry> {
        match self.register()? {
            Some(entry) => Ok(entry),
            None => self.register_at_process_poller(),
        }
    }

    /// A descriptor stays with the process's poller, so a future on a foreign thread does not
    /// depend on the end of an instance.
    #[cold]
    fn register_at_process_poller(&self) -> io::Result<&'static DescriptorEntry> {
        let poller = process_poller::get()?;
        let _changing = self.change()?;
        if let Some(&entry) = self.entry.get() {
            if entry.home.load(Ordering::Relaxed) != poller.home {
                let former = entry.join(poller, self.fd)?;
                self.remove_from(former);
            }
            return Ok(entry);
        }
        let entry = DescriptorEntry::take();
        if let Err(e) = entry.join(poller, self.fd) {
            entry.give_back();
            return Err(e);
        }
        Ok(self.entry.get_or_init(|| entry))
    }

    fn register_at(&self, vp: &Vp) -> io::Result<&'static DescriptorEntry> {
        if let Some(entry) = self.entry.get()
            && vp.instance().is_polled_at(entry.home.load(Ordering::Relaxed))
        {
            return Ok(entry);
        }
        let _changing = self.change()?;
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

/// While it lives, [`Source::retire`] waits.
struct Changing<'a>(&'a Source, #[allow(dead_code)] NoEvents);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.0.life.store(readiness::OPEN, Ordering::Release);
    }
}

impl Source {
    /// Begins a registration, which [`retire`](Source::retire) does not overtake: what is added to
    /// a set is the file that the source was made for.
    fn change(&self) -> io::Result<Changing<'_>> {
        // A registration is short, and is not preempted.
        let quiet = NoEvents::new();
        loop {
            match self.life.compare_exchange(
                readiness::OPEN,
                readiness::CHANGING,
                Ordering::Acquire,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(Changing(self, quiet)),
                Err(readiness::RETIRED) => return Err(io::Error::from_raw_os_error(libc::EBADF)),
                Err(_) => std::hint::spin_loop(),
            }
        }
    }

    /// Ends the use of the descriptor, before it is closed: wakes all waiters, and lets nobody wait
    /// again. `is_open`: the number still means the file that the source was made for, so it is
    /// removed from its set.
    pub fn retire(&self, is_open: bool) {
        let _quiet = NoEvents::new();
        while let Err(other) = self.life.compare_exchange(
            readiness::OPEN,
            readiness::RETIRED,
            Ordering::AcqRel,
            Ordering::Acquire,
        ) {
            if other == readiness::RETIRED {
                return;
            }
            std::hint::spin_loop();
        }
        let Some(&entry) = self.entry.get() else { return };
        if is_open {
            self.remove(entry);
        }
        if let Some(reader) = entry.report(libc::EPOLLHUP) {
            reader.wake();
        }
    }

    fn remove(&self, entry: &DescriptorEntry) {
        self.remove_from(entry.home.load(Ordering::Relaxed));
    }

    fn remove_from(&self, home: u32) {
        if let Some(poller) = process_poller::at(home) {
            return poller.remove(self.fd);
        }
        instance::visit(|instance| {
            if let Some(poller) = instance.and_then(|i| i.poller_at(home)) {
                poller.remove(self.fd);
            }
        });
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

    /// Adds the descriptor to the set of the process, and returns the home of its former set. Until
    /// the caller removes it there, edges count twice: nothing is lost, and if the addition fails,
    /// nothing changes. The caller excludes other registrations.
    fn join(&'static self, poller: &Poller, fd: RawFd) -> io::Result<u32> {
        let _alone = lock(&self.waiters);
        poller.add(fd, self.token())?;
        Ok(self.home.swap(poller.home, Ordering::Relaxed))
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        let Some(&entry) = self.entry.get() else { return };
        if !self.is_retired() {
            self.remove(entry);
        }
        entry.give_back();
    }
}

impl Instance {
    /// Returns the poller with that `home`, if it belongs to this instance.
    fn poller_at(&self, home: u32) -> Option<&Poller> {
        self.vps.get((home & 0x3ff) as usize).map(|vp| &vp.poller).filter(|p| p.home == home)
    }

    /// Whether the poller with that `home` belongs to a VP of this instance that is not retired, or
    /// to the process.
    fn is_polled_at(&self, home: u32) -> bool {
        self.poller_at(home).is_some() && !self.vps[(home & 0x3ff) as usize].is_retired()
            || process_poller::at(home).is_some()
    }
}
