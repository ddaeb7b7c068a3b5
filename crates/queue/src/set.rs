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
use crate::loom::Ordering;
use crate::node::Node;
use crate::owner::Owner;
use crate::part::shared_side::Stats;
use crate::part::waiver_queue::WAIVER_PLACES;
use crate::run_queue::{Design, RunQueue};

/// Most VPs that a [`Set`] has.
pub const MAX_VPS: usize = kumihimo_config::MAX_VPS;

enum DesignQueues<T: Node> {
    Ring(QueueArray<RingQueue<T>>),
    #[cfg(feature = "lab")]
    Locked(QueueArray<LockedQueue<T>>),
    #[cfg(all(feature = "lab", not(loom)))]
    Steal(QueueArray<StealQueue<T>>),
}

/// The run queues of all VPs. Dropping it does not touch items that are still queued.
pub struct Set<T: Node> {
    queues: DesignQueues<T>,
    n: usize,
}

impl<T: Node> Set<T> {
    /// Empty queues for `n_vps` VPs.
    ///
    /// # Panics
    /// If `n_vps` is not 1..=[`MAX_VPS`]. (Under loom, `steal` is not there and panics.)
    pub fn new(design: Design, n_vps: usize, capacity: Capacity) -> Set<T> {
        Set::with_places(design, n_vps, capacity, WAIVER_PLACES)
    }

    /// As [`Set::new`], with Waiver Queues of `places`.
    ///
    /// # Panics
    /// As [`Set::new`]; or if `places` is not a power of two.
    pub fn with_places(design: Design, n_vps: usize, capacity: Capacity, places: usize) -> Set<T> {
        assert!((1..=MAX_VPS).contains(&n_vps), "{n_vps} VPs: 1 to {MAX_VPS} are possible");
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
            Design::Steal => panic!("crossbeam-deque is not modelled"),
        };
        Set { queues, n: n_vps }
    }

    /// Number of VPs.
    #[inline]
    pub fn vps(&self) -> usize {
        self.n
    }

    /// The design in use.
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

    /// The owner's side of VP `vp`'s queue. Handles are copies of one pointer: get one and keep it
    /// with the VP.
    ///
    /// # Panics
    /// If there is no such VP.
    ///
    /// # Safety
    /// The user of the handle is the carrier of that VP: at most one kernel thread at a time,
    /// successive ones with a happens-before edge between them, and not from within (a signal
    /// handler interrupting) another operation of the same VP. The `Set` outlives its handles.
    #[inline]
    pub unsafe fn local(&self, vp: usize) -> Owner<T> {
        // SAFETY: (of the longer lifetime) an array's queues have a fixed address, and by the
        // caller's promise the set outlives its handles.
        let queue = unsafe {
            core::mem::transmute::<AnyQueue<'_, T>, AnyQueue<'static, T>>(self.queue(vp))
        };
        Owner { queue, not_send: PhantomData }
    }

    /// Hands a runnable item to a VP from any kernel thread. `true`: the VP's injector was empty,
    /// so see to it that the VP looks (a fence is the caller's affair: the compare-exchange within
    /// is one on x86).
    ///
    /// # Safety
    /// As [`Injector::push`](crate::injector::Injector::push).
    #[inline]
    pub unsafe fn inject(&self, vp: usize, item: NonNull<T>) -> bool {
        // SAFETY: as the caller promises.
        each!(self.queue(vp), q => unsafe { q.injector().push(item) })
    }

    /// Whether something was injected for a VP that it has not taken yet, by anyone.
    pub fn has_injected(&self, vp: usize) -> bool {
        each!(self.queue(vp), q => !q.injector().is_empty())
    }

    /// [`RunQueue::has_visible_work`] of any VP, by anyone.
    pub fn has_visible_work(&self, vp: usize) -> bool {
        self.queue(vp).has_visible_work()
    }

    /// [`RunQueue::shown`] of any VP: runnable items and bitmap of levels.
    pub fn shown(&self, vp: usize) -> (usize, u64) {
        self.queue(vp).shown()
    }

    /// Says, by anyone, that VP `vp` takes no steps, or does again: meanwhile nothing is given to
    /// it that it alone could take.
    pub fn set_stuck(&self, vp: usize, is: bool) {
        each!(self.queue(vp), q => q.shared().shown.stuck.store(is, Ordering::Relaxed));
    }

    /// What [`set_stuck`](Set::set_stuck) said last.
    pub fn is_stuck(&self, vp: usize) -> bool {
        each!(self.queue(vp), q => q.shared().is_stuck())
    }

    /// Counters of any VP.
    pub fn stats(&self, vp: usize) -> Stats {
        self.queue(vp).stats()
    }
}
