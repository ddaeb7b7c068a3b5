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

mod claim;

pub use claim::Claim;

use crate::loom::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

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

    /// Whether an event waits. By any kernel thread; out of date at once.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) & !PROBE != 0
    }

    /// How many times it is masked. For the owning kernel thread.
    pub fn depth(&self) -> u32 {
        self.masked.load(Ordering::Relaxed)
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
}

#[cfg(all(test, loom))]
mod tests {
    mod loom;
}

#[cfg(all(test, not(loom)))]
mod tests;
