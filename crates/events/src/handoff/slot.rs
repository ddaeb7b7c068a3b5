//! Which kernel thread carries which virtual processor, and how a VP is taken over.
//!
//! A spare begins to run microseconds after a kernel thread went to sleep in the kernel, and by
//! then that thread may be back. So a take-over has to be revocable, and the carrying thread must
//! be able to keep its VP without an atomic read-modify-write. The rule:
//!
//! > A kernel thread touches its VP only while its slot is masked, and re-reads `vp` after masking.
//!
//! ```text
//!   carrier                                  claimer (a spare)
//!   exit():    masked = 0  (release)
//!   ... away, or in user code ...            claim():  vp: P -> P|CLAIMING  (compare-exchange)
//!   enter():   masked = 1                              heavy barrier
//!              light barrier                           masked != 0 ?  vp = P   (given back)
//!              read vp                                 else           vp = 0   (taken)
//!                P          -> still mine
//!                P|LENT     -> P by compare-exchange: still mine
//!                P|CLAIMING -> wait for the claimer, some instructions
//!                0          -> lost: wait to be scheduled
//! ```
//! The barriers make it impossible that the carrier reads `P` *and* the claimer reads
//! `masked == 0`: one of them sees the other's store. The release/acquire pair on `masked` (taken)
//! and on `vp` (given back) hands the VP's contents over.
//!
//! A source that acts in the kernel, while the carrier is off its core (BPF), needs no barrier: it
//! writes `P|LENT` where it finds `masked == 0`, and a spare and the returning carrier settle by
//! compare-exchange whose it is ([`Slot::accept`]).
//!
//! The slot lies in the shared page ([`crate::page`]): whatever is read from it is checked before
//! it is used, and it holds no addresses.

use crate::handoff::barrier;
use crate::loom::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering, compiler_fence};
use crate::report::fatal::{BoundedBackoff, fatal};

/// In `vp`: a spare is taking the VP over.
pub const CLAIMING: u64 = 1;
/// In `vp`: the carrier sleeps in the kernel, and the VP is anyone's.
pub const LENT: u64 = 2;

/// In `wanted`: Blocked is to be told.
pub const WANT_BLOCKED: u32 = 1;
/// In `wanted`: Unblocked is to be told, by SIGTRAP on the way back.
pub const WANT_UNBLOCKED: u32 = 2;

/// In `pending`: no event, but the watchdog's probe, which the next outermost unmask takes.
pub(crate) const PROBE: u32 = 1 << 16;

/// Where `vp` lies in a [`Slot`], for debuggers.
pub const VP_AT: usize = std::mem::offset_of!(Slot, vp);

/// In `priority`: nothing to run.
pub const NO_PRIORITY: i32 = -1;

/// What stands in `vp` for VP number `vp`.
#[must_use]
pub const fn token(vp: u32) -> u64 {
    (vp as u64 + 1) << 2
}

/// The VP that a token stands for, if it is one of `vps`.
#[must_use]
pub const fn vp_of(token: u64, vps: u32) -> Option<u32> {
    let number = token >> 2;
    if number == 0 || number > vps as u64 { None } else { Some((number - 1) as u32) }
}

/// The shared page's record of a kernel thread: which VP it carries, and what both halves tell each
/// other. 256 bytes; the layout is the BPF program's too (`bpf/events.bpf.c`), and
/// [`crate::page::VERSION`] counts its changes.
#[derive(Debug)]
#[repr(C, align(256))]
pub struct Slot {
    reserved: u64,
    vp: AtomicU64,
    masked: AtomicU32,
    /// What the kernel's half shall tell ([`WANT_BLOCKED`], [`WANT_UNBLOCKED`]).
    pub wanted: AtomicU32,
    /// Events that wait until the slot is unmasked ([`crate::sched::Event::bit`]).
    pub pending: AtomicU32,
    /// Of the microprocess that runs here, or runs here next; [`NO_PRIORITY`] if there is none.
    pub priority: AtomicI32,
    /// The id of the microprocess that is bound here.
    pub microprocess: AtomicU64,
    /// The kernel thread's id; 0: the slot is free.
    pub tid: AtomicU32,
    /// [`crate::sched::ThreadState`].
    pub state: AtomicU32,
    /// Sleeps in which the VP was given up, counted by the source.
    pub blocked: AtomicU64,
    /// Returns from such sleeps that were told by a trap.
    pub unblocked: AtomicU64,
    /// Sleeps that could not be told.
    pub missed: AtomicU64,
    /// When the last Blocked was, nanoseconds of CLOCK_MONOTONIC.
    pub stamp: AtomicU64,
    /// How often its kernel thread has begun to carry a VP. A thread that took one of them away
    /// knows by this whether it has another one by now.
    pub(crate) times: AtomicU64,
}

// Atomics of loom have another size.
const _: () = if cfg!(not(loom)) {
    use std::mem::offset_of;
    assert!(size_of::<Slot>() == 256);
    assert!(
        offset_of!(Slot, vp) == 8
            && offset_of!(Slot, masked) == 16
            && offset_of!(Slot, wanted) == 20
    );
    assert!(
        offset_of!(Slot, pending) == 24
            && offset_of!(Slot, priority) == 28
            && offset_of!(Slot, microprocess) == 32
    );
    assert!(
        offset_of!(Slot, tid) == 40
            && offset_of!(Slot, state) == 44
            && offset_of!(Slot, blocked) == 48
    );
    assert!(
        offset_of!(Slot, unblocked) == 56
            && offset_of!(Slot, missed) == 64
            && offset_of!(Slot, stamp) == 72
    );
    assert!(offset_of!(Slot, times) == 80);
};

/// What came of [`Slot::claim`].
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The VP (its token) now belongs to the caller.
    Taken(u64),
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
        Slot {
            reserved: 0,
            vp: AtomicU64::new(0),
            masked: AtomicU32::new(1),
            wanted: AtomicU32::new(0),
            pending: AtomicU32::new(0),
            priority: AtomicI32::new(NO_PRIORITY),
            microprocess: AtomicU64::new(0),
            tid: AtomicU32::new(0),
            state: AtomicU32::new(0),
            blocked: AtomicU64::new(0),
            unblocked: AtomicU64::new(0),
            missed: AtomicU64::new(0),
            stamp: AtomicU64::new(0),
            times: AtomicU64::new(0),
        }
    }

    /// For another kernel thread, which has it for itself: what others may still do is look.
    pub(crate) fn renew(&self, tid: u32) {
        self.masked.store(1, Ordering::Relaxed);
        self.vp.store(0, Ordering::Relaxed);
        self.wanted.store(0, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
        self.priority.store(NO_PRIORITY, Ordering::Relaxed);
        self.microprocess.store(0, Ordering::Relaxed);
        self.tid.store(tid, Ordering::Release);
    }

    /// Puts a VP into the slot. Only by the owning kernel thread, masked, or by the thread that
    /// hands it a VP while it waits for one.
    pub fn install(&self, token: u64) {
        debug_assert!(token != 0 && token & (CLAIMING | LENT) == 0);
        self.vp.store(token, Ordering::Release);
    }

    /// Takes the VP out of the slot. Only by the owning kernel thread, masked.
    pub fn remove(&self) {
        self.vp.store(0, Ordering::Release);
    }

    /// From here the VP `token` is safe from being taken over, if it is still there: false if it
    /// was lost. Only by the owning kernel thread. Nests.
    ///
    /// No fence: claimers interrupt the carrier's core ([`barrier::heavy`]), or lend while it is
    /// off its core.
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

    /// The end of an [`enter`](Slot::enter). True if it was the outermost one and an event waits
    /// for that.
    #[inline(always)]
    #[must_use]
    pub fn exit(&self) -> bool {
        let depth = self.masked.load(Ordering::Relaxed).wrapping_sub(1);
        self.masked.store(depth, Ordering::Release);
        compiler_fence(Ordering::SeqCst);
        depth == 0 && self.pending.load(Ordering::Relaxed) != 0
    }

    /// Whether an event waits. By any kernel thread; out of date at once.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) & !PROBE != 0
    }

    /// How many times it is masked. For the owning kernel thread.
    pub fn depth(&self) -> u32 {
        self.masked.load(Ordering::Relaxed)
    }

    /// Once the claimer has decided: whether VP `token` is the carrier's.
    ///
    /// # Panics
    /// Aborts if the slot holds what nobody wrote: the shared page is corrupt, and whose the VP is
    /// cannot be known.
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
                // Acquire: nobody had it meanwhile, but a spare may have looked.
                if self.vp.compare_exchange(vp, token, Ordering::Acquire, Ordering::Relaxed).is_ok()
                {
                    return true;
                }
                continue;
            }
            // The claimer is between its compare-exchange and its answer.
            if vp | LENT != token | CLAIMING | LENT || !backoff.snooze() {
                fatal(format_args!(
                    "a slot says {vp:#x} where its kernel thread carries {token:#x}"
                ));
            }
        }
    }

    /// Whether a claim may succeed. By any kernel thread; out of date at once.
    pub fn is_open(&self) -> bool {
        let vp = self.vp.load(Ordering::Relaxed);
        vp != 0 && vp & CLAIMING == 0 && self.masked.load(Ordering::Relaxed) == 0
    }

    /// Whether the carrier is inside the user scheduler, or another critical section. By any kernel
    /// thread; out of date at once.
    pub fn is_masked(&self) -> bool {
        self.masked.load(Ordering::Relaxed) != 0
    }

    /// Whether it has a VP. For the owning kernel thread, masked; by others out of date at once.
    pub fn has_vp(&self) -> bool {
        self.vp.load(Ordering::Relaxed) != 0
    }

    /// Whether it has this VP, and neither lent nor claimed. By any kernel thread; out of date at
    /// once.
    pub fn carries(&self, vp: u32) -> bool {
        self.vp.load(Ordering::Relaxed) == token(vp)
    }

    /// From here the VP may be taken over at any moment. Only by the owning kernel thread, masked
    /// once.
    pub fn unmask(&self) {
        self.masked.store(0, Ordering::Release);
    }

    /// Masked once more without looking for a VP. Only by the owning kernel thread.
    #[inline(always)]
    pub fn mask(&self) {
        self.masked.store(self.masked.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        barrier::light();
    }

    /// Takes the VP over, unless its carrier is back. By any kernel thread. Blocks the kernel
    /// thread for one heavy barrier.
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

    /// Takes a VP over that the kernel's half found given up. By any kernel thread.
    pub fn accept(&self) -> Claim {
        let vp = self.vp.load(Ordering::Relaxed);
        // Acquire: the carrier wrote the VP's contents before it slept, and the source wrote LENT
        // on its core after that.
        if vp & LENT != 0
            && vp & CLAIMING == 0
            && self.vp.compare_exchange(vp, 0, Ordering::Acquire, Ordering::Relaxed).is_ok()
        {
            return Claim::Taken(vp & !LENT);
        }
        Claim::Refused
    }

    /// What a source in the kernel does when the carrier goes to sleep: the VP is anyone's. For the
    /// carrier's own core only.
    #[must_use]
    pub fn lend(&self) -> bool {
        let vp = self.vp.load(Ordering::Relaxed);
        self.masked.load(Ordering::Relaxed) == 0
            && vp != 0
            && vp & (CLAIMING | LENT) == 0
            && self.vp.compare_exchange(vp, vp | LENT, Ordering::Release, Ordering::Relaxed).is_ok()
    }
}

#[cfg(all(test, loom))]
mod tests {
    mod loom;
}

#[cfg(all(test, not(loom)))]
mod tests;
