//! The take-over protocol: masking by the carrier, claims by other threads.

use super::{CLAIMING, LENT, Slot, WANTED};
use crate::handoff::barrier;
use crate::loom::atomic::{Ordering, compiler_fence};
use crate::report::fatal::{BoundedBackoff, fatal};

/// The outcome of [`Slot::claim`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The VP of this token now belongs to the caller.
    Taken(u64),
    /// The carrier is back, the slot has no VP, or another claimer was first.
    Refused,
}

impl Slot {
    /// Masks the slot, so that the VP `token` cannot be taken over. Returns false if the VP is
    /// already lost. Calls nest. Called by the owning kernel thread.
    ///
    /// Needs no fence: a claimer interrupts the carrier's core ([`barrier::heavy`]), and a source
    /// lends the VP only while the carrier is off its core. The load of `vp` acquires, so that on a
    /// weakly ordered processor no access to the VP's contents comes before it. The store to
    /// `masked` need not release: no thread concludes anything about contents from a slot that is
    /// masked.
    #[inline(always)]
    #[must_use]
    pub fn enter(&self, token: u64) -> bool {
        self.mask();
        self.check(token)
    }

    #[inline(always)]
    fn check(&self, token: u64) -> bool {
        let vp = self.vp.load(Ordering::Acquire);
        if vp == token && vp != 0 { true } else { self.settled(token) }
    }

    /// Ends an [`enter`](Slot::enter). Returns true if it was the outermost one and an event is
    /// pending.
    #[inline(always)]
    #[must_use]
    pub fn exit(&self) -> bool {
        let depth = self.masked.load(Ordering::Relaxed).wrapping_sub(1);
        // Release: a claimer that finds 0 has the VP's contents.
        self.masked.store(depth, Ordering::Release);
        // The load may be executed before the store is visible, on x86 as on weaker processors. A
        // thread that sets a bit therefore rings a doorbell too (`raise`), or executes a heavy
        // barrier (`await_unmask`).
        compiler_fence(Ordering::SeqCst);
        depth == 0 && self.pending.load(Ordering::Relaxed) != 0
    }

    /// Waits until a claimer has decided. Returns whether VP `token` still belongs to the carrier.
    ///
    /// # Panics
    /// Aborts if the slot has a value that the protocol never writes: the shared page is corrupt,
    /// and the owner of the VP is unknown.
    #[cold]
    fn settled(&self, token: u64) -> bool {
        let mut backoff = BoundedBackoff::default();
        loop {
            let vp = self.vp.load(Ordering::Acquire);
            if vp == 0 {
                return false;
            }
            if vp == token {
                return true;
            }
            if vp == token | LENT {
                // Acquire: no thread took the VP, but a spare may have read its contents.
                if self.vp.compare_exchange(vp, token, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    return true;
                }
                continue;
            }
            // The claimer is between its compare-exchange and its store.
            if vp | LENT != token | CLAIMING | LENT || !backoff.snooze() {
                fatal(format_args!(
                    "a slot contains {vp:#x}, but its kernel thread carries {token:#x}"
                ));
            }
        }
    }

    /// Returns whether a claim may succeed. Called by any kernel thread; the result may be out of
    /// date.
    pub fn is_open(&self) -> bool {
        let vp = self.vp.load(Ordering::Relaxed);
        vp != 0 && vp & CLAIMING == 0 && self.masked.load(Ordering::Relaxed) == 0
    }

    /// Clears the mask, so that the VP may be taken over at any moment. Called by the owning kernel
    /// thread, masked once.
    pub fn unmask(&self) {
        self.masked.store(0, Ordering::Release);
    }

    /// Increments the mask without checking for a VP. Called by the owning kernel thread.
    #[inline(always)]
    pub fn mask(&self) {
        self.masked.store(self.masked.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        barrier::light();
    }

    /// Takes the VP over, unless its carrier is back. Called by any kernel thread. Blocks the
    /// kernel thread for one heavy barrier.
    pub fn claim(&self) -> Claim {
        let vp = self.vp.load(Ordering::Relaxed);
        if vp & LENT != 0 {
            return self.accept();
        }
        if !self.is_open() {
            return Claim::Refused;
        }
        if self
            .vp
            .compare_exchange(vp, vp | CLAIMING, Ordering::Acquire, Ordering::Relaxed)
            .is_err()
        {
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

    /// Asks the carrier, whose slot was masked, to wake a spare when it unmasks. Returns false if
    /// the carrier may have unmasked before it saw that, so that the caller has to try again.
    /// Called by any kernel thread. Blocks the kernel thread for one heavy barrier.
    #[must_use]
    pub fn await_unmask(&self) -> bool {
        self.pending.fetch_or(WANTED, Ordering::Relaxed);
        // Pairs with the compiler fence in `exit`: either the carrier sees the bit after its store
        // to `masked`, or that store is visible here.
        barrier::heavy();
        self.masked.load(Ordering::Acquire) != 0
    }

    /// Takes over a VP that was lent. Called by any kernel thread.
    pub fn accept(&self) -> Claim {
        let vp = self.vp.load(Ordering::Relaxed);
        // Acquire: the carrier wrote the VP's contents before it slept, and the source wrote LENT
        // on the carrier's core after that.
        if vp & LENT != 0
            && vp & CLAIMING == 0
            && self.vp.compare_exchange(vp, 0, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return Claim::Taken(vp & !LENT);
        }
        Claim::Refused
    }

    /// Lends the VP, as a source in the kernel does when the carrier goes to sleep: any thread may
    /// accept it. Called on the carrier's own core only.
    #[must_use]
    pub fn lend(&self) -> bool {
        let vp = self.vp.load(Ordering::Relaxed);
        self.masked.load(Ordering::Relaxed) == 0
            && vp != 0
            && vp & (CLAIMING | LENT) == 0
            && self.vp.compare_exchange(vp, vp | LENT, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}
