//! Who carries which virtual processor, and how it is taken over.
//!
//! A spare begins to run microseconds after a kernel thread went to sleep in the kernel, and by then that thread may be back.
//! So a take-over has to be revocable, and the carrying thread must be able to keep its VP without an atomic
//! read-modify-write. The rule:
//!
//! > A kernel thread touches its VP only while its slot is masked, and re-reads `vp` after masking.
//!
//! ```text
//!   carrier                                  claimer (a spare)
//!   unmask():  masked = 0  (release)
//!   ... away, or in user code ...            claim():  vp: P -> P|CLAIMING  (compare-exchange)
//!   mask():    masked = 1                              heavy barrier
//!              light barrier                           masked != 0 ?  vp = P   (given back)
//!              read vp                                 else           vp = 0   (taken)
//!                P          -> still mine
//!                P|CLAIMING -> wait for the claimer, some instructions
//!                0          -> lost: wait to be scheduled
//! ```
//! The barriers make it impossible that the carrier reads `P` *and* the claimer reads `masked == 0`: one of them sees the
//! other's store. The release/acquire pair on `masked` (taken) and on `vp` (given back) hands the VP's contents over.

use crate::atomic::{AtomicU32, AtomicUsize, Ordering, compiler_fence};
use crate::{barrier, hint};

const CLAIMING: usize = 1;

/// A kernel thread's record of the VP that it carries.
#[derive(Debug)]
#[repr(C)]
pub struct Slot {
    // First: the runtime reads it relative to GS.
    vp: AtomicUsize,
    masked: AtomicU32,
}

/// What came of [`Slot::claim`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The VP (its address) now belongs to the caller.
    Taken(usize),
    /// The carrier is back, or there was nothing, or another claimer was first.
    Refused,
}

impl Default for Slot {
    fn default() -> Slot {
        Slot::new()
    }
}

impl Slot {
    /// A slot without a VP, masked.
    pub fn new() -> Slot {
        Slot { vp: AtomicUsize::new(0), masked: AtomicU32::new(1) }
    }

    /// Puts a VP into the slot. Only by the owning kernel thread, masked, with no VP in it.
    ///
    /// # Panics
    /// If `vp` is 0 or odd: it is an address.
    pub fn install(&self, vp: usize) {
        assert!(vp != 0 && vp & CLAIMING == 0, "a VP's address is even and not null");
        debug_assert_eq!(self.masked.load(Ordering::Relaxed), 1);
        self.vp.store(vp, Ordering::Release);
    }

    /// From here the VP is safe from being taken over, if it is still there (its address; 0: lost). Only by the owning kernel thread. Nests.
    ///
    /// No fence: only for those who are taken over by claimers that call [`barrier::heavy`], or while they are off their core.
    #[inline(always)]
    #[must_use]
    pub fn enter(&self) -> usize {
        let depth = self.masked.load(Ordering::Relaxed);
        self.masked.store(depth + 1, Ordering::Relaxed);
        compiler_fence(Ordering::SeqCst);
        let vp = self.vp.load(Ordering::Acquire);
        if vp & CLAIMING == 0 { vp } else { self.settled() }
    }

    /// The end of an [`enter`](Slot::enter).
    #[inline(always)]
    pub fn exit(&self) {
        let depth = self.masked.load(Ordering::Relaxed);
        debug_assert!(depth > 0);
        self.masked.store(depth - 1, Ordering::Release);
    }

    /// How many times it is masked. For the owning kernel thread.
    pub fn depth(&self) -> u32 {
        self.masked.load(Ordering::Relaxed)
    }

    /// Once the claimer has decided.
    #[cold]
    fn settled(&self) -> usize {
        loop {
            let vp = self.vp.load(Ordering::Acquire);
            if vp & CLAIMING == 0 {
                return vp;
            }
            // The claimer is between its compare-exchange and its answer; it may have been descheduled there.
            hint::spin_loop();
            #[cfg(loom)]
            loom::thread::yield_now();
        }
    }

    /// Whether a claim may succeed. By any kernel thread; out of date at once.
    pub fn is_open(&self) -> bool {
        let vp = self.vp.load(Ordering::Relaxed);
        vp != 0 && vp & CLAIMING == 0 && self.masked.load(Ordering::Relaxed) == 0
    }

    /// Whether it has a VP. For the owning kernel thread, masked.
    pub fn has_vp(&self) -> bool {
        self.vp.load(Ordering::Relaxed) != 0
    }

    /// From here the VP may be taken over at any moment. Only by the owning kernel thread.
    pub fn unmask(&self) {
        self.masked.store(0, Ordering::Release);
    }

    /// Back from being away: true if the VP is still this kernel thread's, and stays so until the next [`unmask`](Slot::unmask).
    #[must_use]
    pub fn mask(&self) -> bool {
        self.masked.store(1, Ordering::Relaxed);
        barrier::light();
        self.settled() != 0
    }

    /// Takes the VP over, unless its carrier is back. By any kernel thread. Blocks the kernel thread for one heavy barrier.
    pub fn claim(&self) -> Claim {
        let vp = self.vp.load(Ordering::Relaxed);
        if !self.is_open() {
            return Claim::Refused;
        }
        if self.vp.compare_exchange(vp, vp | CLAIMING, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return Claim::Refused;
        }
        barrier::heavy();
        if self.masked.load(Ordering::Acquire) != 0 {
            self.vp.store(vp, Ordering::Release);
            return Claim::Refused;
        }
        self.vp.store(0, Ordering::Release);
        Claim::Taken(vp)
    }
}

#[cfg(all(test, loom))]
mod models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    struct Vp(UnsafeCell<u32>);
    // SAFETY: the model checks that accesses are ordered; loom's cell panics on a race.
    unsafe impl Sync for Vp {}
    // SAFETY: as above.
    unsafe impl Send for Vp {}

    const ADDRESS: usize = 64;

    fn touch(vp: &Vp) {
        // SAFETY: exclusive if the protocol is right, which loom checks.
        vp.0.with_mut(|p| unsafe { *p += 1 });
    }

    /// The carrier leaves and comes back while one spare claims: exactly one of them has the VP, and sees all of its contents.
    fn one_round(claimers: usize) {
        let mut model = loom::model::Builder::new();
        // All interleavings of three threads take minutes; three preemptions reach every pair of steps.
        model.preemption_bound = (claimers > 1).then_some(3);
        model.check(move || {
            let slot = Arc::new(Slot::new());
            let vp = Arc::new(Vp(UnsafeCell::new(0)));
            let taken = Arc::new(AtomicU32::new(0));
            slot.install(ADDRESS);
            touch(&vp);
            slot.unmask();
            let spares: Vec<_> = (0..claimers)
                .map(|_| {
                    let (slot, vp, taken) = (slot.clone(), vp.clone(), taken.clone());
                    loom::thread::spawn(move || {
                        if slot.claim() == Claim::Taken(ADDRESS) {
                            taken.fetch_add(1, Ordering::Relaxed);
                            touch(&vp);
                        }
                    })
                })
                .collect();
            let mine = slot.mask();
            if mine {
                touch(&vp);
            }
            for s in spares {
                s.join().unwrap();
            }
            assert_eq!(u32::from(mine) + taken.load(Ordering::Relaxed), 1, "the VP has exactly one carrier");
        });
    }

    #[test]
    fn one_claimer() {
        one_round(1);
    }

    #[test]
    fn two_claimers() {
        one_round(2);
    }

    /// A refused claim leaves the slot usable: away twice.
    #[test]
    fn away_twice() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let vp = Arc::new(Vp(UnsafeCell::new(0)));
            slot.install(ADDRESS);
            slot.unmask();
            let spare = {
                let (slot, vp) = (slot.clone(), vp.clone());
                loom::thread::spawn(move || {
                    let taken = slot.claim() == Claim::Taken(ADDRESS);
                    if taken {
                        touch(&vp);
                    }
                    taken
                })
            };
            let mut mine = slot.mask();
            if mine {
                touch(&vp);
                slot.unmask();
                mine = slot.mask();
                if mine {
                    touch(&vp);
                }
            }
            assert_ne!(mine, spare.join().unwrap());
        });
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_masked_carrier_keeps_its_vp() {
        let slot = Slot::new();
        slot.install(64);
        assert_eq!(slot.claim(), Claim::Refused);
        slot.unmask();
        assert!(slot.mask());
        assert!(slot.has_vp());
    }

    /// Many rounds on real kernel threads with the real barriers: the VP is never lost and never doubled.
    #[test]
    fn never_two_carriers() {
        let slot = Arc::new(Slot::new());
        let owners = Arc::new(AtomicU32::new(0));
        let rounds = 20_000;
        let offered = Arc::new(AtomicUsize::new(0));
        let given_back = Arc::new(AtomicUsize::new(0));
        let claimer = {
            let (slot, owners, offered, given_back) =
                (slot.clone(), owners.clone(), offered.clone(), given_back.clone());
            std::thread::spawn(move || {
                let mut taken = 0;
                while offered.load(Ordering::Acquire) < rounds {
                    if let Claim::Taken(vp) = slot.claim() {
                        assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0);
                        owners.fetch_sub(1, Ordering::SeqCst);
                        given_back.store(vp, Ordering::Release);
                        taken += 1;
                    } else {
                        std::thread::yield_now();
                    }
                }
                taken
            })
        };
        slot.install(64);
        let (mut kept, mut lost) = (0, 0);
        for round in 1..=rounds {
            slot.unmask();
            if round % 3 == 0 {
                std::thread::yield_now();
            }
            if slot.mask() {
                assert_eq!(owners.fetch_add(1, Ordering::SeqCst), 0);
                owners.fetch_sub(1, Ordering::SeqCst);
                kept += 1;
            } else {
                while given_back.swap(0, Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
                slot.install(64);
                lost += 1;
            }
            offered.store(round, Ordering::Release);
        }
        let taken = claimer.join().unwrap();
        assert_eq!(taken, lost);
        assert_eq!(kept + lost, rounds);
    }
}
