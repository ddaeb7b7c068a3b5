//! The run queues of all VPs.

use core::marker::PhantomData;
use core::ptr::NonNull;

use crate::any_queue::{AnyQueue, each};
use crate::design::capacity::Capacity;
#[cfg(feature = "lab")]
use crate::design::locked::LockedQueue;
use crate::design::peers::{Peer, QueueArray};
use crate::design::ring::RingQueue;
#[cfg(all(feature = "lab", not(loom)))]
use crate::design::steal::StealQueue;
use crate::node::Node;
use crate::owner::Owner;
use crate::part::shared_side::{RETIRED, STUCK, Stats};
use crate::part::waiver_queue::WAIVER_PLACES;
use crate::run_queue::{Design, RunQueue};

/// Largest number of VPs in a [`Set`].
pub const MAX_VPS: usize = kumihimo_config::MAX_VPS;

enum DesignQueues<T: Node> {
    Ring(QueueArray<RingQueue<T>>),
    #[cfg(feature = "lab")]
    Locked(QueueArray<LockedQueue<T>>),
    #[cfg(all(feature = "lab", not(loom)))]
    Steal(QueueArray<StealQueue<T>>),
}

/// The run queues of all VPs. Dropping the set does not touch items that are still queued.
pub struct Set<T: Node> {
    queues: DesignQueues<T>,
    n: usize,
}

impl<T: Node> Set<T> {
    /// Creates empty queues for `n_vps` VPs.
    ///
    /// # Panics
    /// Panics if `n_vps` is not in 1..=[`MAX_VPS`], and for `steal` under loom, where that design
    /// is unavailable.
    pub fn new(design: Design, n_vps: usize, capacity: Capacity) -> Set<T> {
        Set::with_places(design, n_vps, capacity, WAIVER_PLACES)
    }

    /// Does the same as [`Set::new`], with `places` places per Waiver Queue.
    ///
    /// # Panics
    /// Panics as [`Set::new`] does, and if `places` is not a power of two.
    pub fn with_places(design: Design, n_vps: usize, capacity: Capacity, places: usize) -> Set<T> {
        assert!((1..=MAX_VPS).contains(&n_vps), "{n_vps} VPs are not possible; use 1 to {MAX_VPS}");
        let queues = match design {
            Design::Ring => DesignQueues::Ring(QueueArray::new(
                n_vps,
                |vp| RingQueue::new(vp, n_vps, capacity, places),
                RingQueue::join,
            )),
            #[cfg(feature = "lab")]
            Design::Locked => DesignQueues::Locked(QueueArray::new(
                n_vps,
                |vp| LockedQueue::new(vp, n_vps, capacity, places),
                LockedQueue::join,
            )),
            #[cfg(all(feature = "lab", not(loom)))]
            Design::Steal => DesignQueues::Steal(QueueArray::new(
                n_vps,
                |vp| StealQueue::new(vp, capacity),
                StealQueue::join,
            )),
            #[cfg(all(feature = "lab", loom))]
            Design::Steal => panic!("the steal design is not available under loom"),
        };
        Set { queues, n: n_vps }
    }

    /// Returns the number of VPs.
    #[inline]
    pub fn vps(&self) -> usize {
        self.n
    }

    /// Returns the design in use.
    pub fn design(&self) -> Design {
        match self.queues {
            DesignQueues::Ring(_) => Design::Ring,
            #[cfg(feature = "lab")]
            DesignQueues::Locked(_) => Design::Locked,
            #[cfg(all(feature = "lab", not(loom)))]
            DesignQueues::Steal(_) => Design::Steal,
        }
    }

    #[inline]
    fn queue(&self, vp: usize) -> AnyQueue<'_, T> {
        match &self.queues {
            DesignQueues::Ring(row) => AnyQueue::Ring(row.get(vp)),
            #[cfg(feature = "lab")]
            DesignQueues::Locked(row) => AnyQueue::Locked(row.get(vp)),
            #[cfg(all(feature = "lab", not(loom)))]
            DesignQueues::Steal(row) => AnyQueue::Steal(row.get(vp)),
        }
    }

    /// Returns the owner's handle to VP `vp`'s queue. Handles are copies of one pointer; obtain one
    /// and store it with the VP.
    ///
    /// # Panics
    /// Panics if there is no such VP.
    ///
    /// # Safety
    /// The user of the handle is the carrier of that VP. At most one kernel thread uses it at a
    /// time, with a happens-before edge between successive threads. A signal handler does not use
    /// it during another operation of the same VP. The `Set` outlives its handles.
    #[inline]
    pub unsafe fn local(&self, vp: usize) -> Owner<T> {
        // SAFETY: the longer lifetime is sound because an array's queues have a fixed address, and
        // the caller guarantees that the set outlives its handles.
        let queue = unsafe {
            core::mem::transmute::<AnyQueue<'_, T>, AnyQueue<'static, T>>(self.queue(vp))
        };
        Owner { queue, not_send: PhantomData }
    }

    /// Passes a runnable item to a VP, from any kernel thread. Returns `true` if the VP's injector
    /// was empty; the caller must then notify the VP. The caller provides the fence between the
    /// push and its load of the VP's state: `push` only releases the item. On x86 its
    /// compare-exchange happens to be a full barrier; on AArch64 a later load may be satisfied
    /// before its store is visible.
    ///
    /// # Safety
    /// Same requirements as [`Injector::push`](crate::injector::Injector::push).
    #[inline]
    pub unsafe fn inject(&self, vp: usize, item: NonNull<T>) -> bool {
        // SAFETY: upheld by the caller.
        each!(self.queue(vp), q => unsafe { q.injector().push(item) })
    }

    /// Returns whether an injected item waits for the VP. Any thread may call this.
    pub fn has_injected(&self, vp: usize) -> bool {
        each!(self.queue(vp), q => !q.injector().is_empty())
    }

    /// Returns [`RunQueue::has_visible_work`] of any VP. Any thread may call this.
    pub fn has_visible_work(&self, vp: usize) -> bool {
        self.queue(vp).has_visible_work()
    }

    /// Returns [`RunQueue::shown`] of any VP: the number of runnable items and the bitmap of
    /// levels.
    pub fn shown(&self, vp: usize) -> (usize, u64) {
        self.queue(vp).shown()
    }

    /// Records whether VP `vp` is stuck, that is, makes no progress. A stuck VP is given no items
    /// that only it can take. Any thread may call this.
    pub fn set_stuck(&self, vp: usize, is: bool) {
        each!(self.queue(vp), q => q.shared().set_closed(STUCK, is));
    }

    /// Records whether VP `vp` is retired, that is, runs no items for the time being. It is given
    /// no items that only it can take, as a stuck one, and has no share of all items. Its owner
    /// hands over what it has, and what it is given nevertheless: see
    /// [`RunQueue::has_incoming`]. Any thread may call this.
    pub fn set_retired(&self, vp: usize, is: bool) {
        each!(self.queue(vp), q => q.shared().set_closed(RETIRED, is));
    }

    /// Returns whether VP `vp` is stuck or retired. Any thread may call this.
    pub fn is_closed(&self, vp: usize) -> bool {
        each!(self.queue(vp), q => q.shared().is_closed())
    }

    /// Returns the counters of any VP.
    pub fn stats(&self, vp: usize) -> Stats {
        self.queue(vp).stats()
    }
}
