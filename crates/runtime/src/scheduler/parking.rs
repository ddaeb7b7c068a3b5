//! Parking: a retired VP parts from its kernel thread.
//!
//! A VP that retires ([`crate::scheduler::retirement`]) hands its microprocesses over. Then its
//! timers move to the first VP, which never retires, and the first VP's epoll set takes in the
//! VP's own set. Each descriptor of that set moves to another VP's when a microprocess waits for it
//! again. At last the kernel thread returns to the pool, and the VP has none.
//!
//! Work can still come to a parked VP, from a thread that decided before the VP retired. Each such
//! thread wakes the VP ([`crate::idle::sleep`]), which then gets a kernel thread for as long as it
//! takes to hand the work over. [`kumihimo_events::park_word`] has the protocol and its models.
//!
//! A VP stays with its kernel thread, and sleeps as an idle one does, while its descriptors cannot
//! be served elsewhere.

use std::sync::atomic::Ordering;

use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::Instance;
use crate::scheduler::vp::Vp;
use crate::trace_hooks;

impl Instance {
    /// Parks the VPs beyond those in use at the start. No kernel thread carries a VP yet.
    pub(in crate::scheduler) fn begin_retired(&self) {
        for vp in &self.vps[self.open()..] {
            vp.retired.store(true, Ordering::Relaxed);
            vp.was_parked.set(true);
            self.queues.set_retired(vp.index, true);
            self.closed_vps.fetch_add(1, Ordering::Relaxed);
            self.resting_vps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Carrier {
    /// Parks the VP if it is retired and has nothing left. Returns the carrier otherwise. On the
    /// kernel thread's own stack.
    #[cold]
    pub(in crate::scheduler) fn park_if_retired(self) -> Option<Carrier> {
        let vp = self.vp();
        if vp.was_parked.take() {
            vp.instance().resting_vps.fetch_sub(1, Ordering::SeqCst);
        }
        if !vp.is_retired() {
            vp.take_set_back();
            return Some(self);
        }
        vp.retire_step();
        if !vp.begin_parking() {
            return Some(self);
        }
        let kt = self.kernel_thread();
        kt.events().park_vp();
        kt.detach_vp();
        // The kernel thread stays masked, as it is in the pool.
        std::mem::forget(self);
        None
    }
}

impl Vp {
    /// Whether [`Carrier::park_if_retired`] has something to do. Owner only.
    #[inline]
    pub(in crate::scheduler) fn has_to_part(&self) -> bool {
        self.is_retired() || self.was_parked.get() || self.is_set_lent.get()
    }

    /// Prepares to park. Returns false if the VP has work, or cannot be parked. It is published as
    /// idle after success, as long as it is parked.
    fn begin_parking(&self) -> bool {
        let instance = self.instance();
        debug_assert_eq!(self.syscall_batch.waiting.get(), 0, "`retire_step` has run the batch");
        self.stays_retired.set(self.promised.get().is_some() || !self.lend_set());
        if self.stays_retired.get() || instance.stopped() {
            return false;
        }
        self.move_timers();
        self.pool.clear();
        self.regions.clear();
        self.begin_idle(instance.now(), &instance.resting_vps);
        // For other address spaces, a VP that has just looked for posts soon does so again.
        self.idle.cell.set_last_poll(0);
        instance.kernel.begin_parking(self.index as u32);
        // As before a sleep: whatever comes from here on is followed by a wake-up.
        let has_work = !self.is_retired()
            || self.queue().has_incoming()
            || !self.queue().is_empty()
            || self.priority_requests.pending()
            || self.row.head.has_posts()
            || self.needs_set()
            || instance.stopped();
        trace_hooks::idles(&self.trace, false);
        if has_work {
            instance.kernel.cancel_parking(self.index as u32);
            instance.resting_vps.fetch_sub(1, Ordering::SeqCst);
        }
        self.was_parked.set(!has_work);
        !has_work
    }

    /// Moves all timers to the first VP.
    fn move_timers(&self) {
        let timers = self.timers().take_all();
        self.turn_clock.note_timer(None);
        if !timers.is_empty() {
            let instance = self.instance();
            instance.moved_timers.send(timers);
            instance.force_step(0);
        }
    }

    /// Takes over timers of VPs that have retired. Owner only.
    #[inline]
    pub(in crate::scheduler) fn receive_moved_timers(&self) {
        if self.index == 0 {
            self.instance().moved_timers.receive(self.timers());
        }
    }

    /// Whether descriptors are registered here and no other VP serves them.
    fn needs_set(&self) -> bool {
        self.poller.is_used() && !self.is_set_lent.get()
    }

    /// Lets the first VP serve the descriptors. Returns false if the kernel refuses that.
    fn lend_set(&self) -> bool {
        if !self.needs_set() {
            return true;
        }
        let first = &self.instance().vps[0];
        let lent = first.poller.add_set(&self.poller).is_ok();
        self.is_set_lent.set(lent);
        if lent {
            // It may sleep on its futex, without its descriptors.
            first.idle.wake();
        }
        lent
    }

    fn take_set_back(&self) {
        if self.is_set_lent.take() {
            self.instance().vps[0].poller.remove_set(&self.poller);
        }
    }
}
