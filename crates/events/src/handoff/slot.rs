//! Slot: records which virtual processor (VP) a kernel thread carries, and how another thread takes
//! that VP over.
//!
//! A spare begins to run microseconds after a kernel thread went to sleep in the kernel. By then
//! the sleeper may already be back. So a take-over must be revocable, and the carrier must be able
//! to keep its VP without an atomic read-modify-write. The rule:
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
//! The barriers exclude that the carrier reads `P` *and* the claimer reads `masked == 0`: at least
//! one of them sees the other's store. The VP's contents are published by the release/acquire pair
//! on `masked` (VP taken) or on `vp` (VP given back).
//!
//! A source that acts in the kernel while the carrier is off its core (BPF) needs no barrier. It
//! writes `P|LENT` if it finds `masked == 0`. A spare and the returning carrier then settle the
//! ownership by compare-exchange ([`Slot::accept`]).
//!
//! The slot is in the shared page ([`crate::page`]). It contains no addresses, and every value is
//! checked after it is read.

mod claim;

pub use claim::Claim;

use crate::loom::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// In `vp`: a spare is claiming the VP.
pub const CLAIMING: u64 = 1;
/// In `vp`: the carrier sleeps in the kernel, and any thread may accept the VP.
pub const LENT: u64 = 2;

/// In `wanted`: report *Blocked*.
pub const WANT_BLOCKED: u32 = 1;
/// In `wanted`: report *Unblocked*, by SIGTRAP on the way back to user mode.
pub const WANT_UNBLOCKED: u32 = 2;

/// In `pending`: the watchdog's probe. It is no event; the next outermost unmask takes it.
pub(crate) const PROBE: u32 = 1 << 16;
/// In `pending`: a spare wanted the VP that the kernel thread lends, and found the slot masked. It
/// is no event; the next outermost unmask takes it and wakes a spare.
pub(crate) const WANTED: u32 = 1 << 17;

/// The offset of `vp` in a [`Slot`], for debuggers.
pub const VP_AT: usize = std::mem::offset_of!(Slot, vp);

/// In `priority`: there is nothing to run.
pub const NO_PRIORITY: i32 = -1;

/// Returns the value of [`Slot`]'s `vp` for VP number `vp`.
#[must_use]
pub const fn token(vp: u32) -> u64 {
    (vp as u64 + 1) << 2
}

/// Returns the VP that `token` stands for, if its number is below `vps`.
#[must_use]
pub const fn vp_of(token: u64, vps: u32) -> Option<u32> {
    let number = token >> 2;
    if number == 0 || number > vps as u64 { None } else { Some((number - 1) as u32) }
}

/// The record of a kernel thread in the shared page: the VP that it carries, and the flags and
/// counters that the two halves exchange. 256 bytes. The BPF program uses the same layout
/// (`bpf/events.bpf.c`); every change of it increments [`crate::page::VERSION`].
#[derive(Debug)]
#[repr(C, align(256))]
pub struct Slot {
    reserved: u64,
    vp: AtomicU64,
    masked: AtomicU32,
    /// The events to report ([`WANT_BLOCKED`], [`WANT_UNBLOCKED`]).
    pub wanted: AtomicU32,
    /// Events that wait until the slot is unmasked ([`crate::sched::Event::bit`]).
    pub pending: AtomicU32,
    /// The priority of the microprocess that runs here or runs here next; [`NO_PRIORITY`] if there
    /// is none.
    pub priority: AtomicI32,
    /// The ID of the microprocess that is bound to the kernel thread.
    pub microprocess: AtomicU64,
    /// The kernel thread's ID; 0: the slot is free.
    pub tid: AtomicU32,
    /// A [`crate::sched::ThreadState`], with [`BOUND`](crate::sched::BOUND) if a microprocess is
    /// bound.
    pub state: AtomicU32,
    /// The number of sleeps in which the VP was given up, counted by the source.
    pub blocked: AtomicU64,
    /// The number of returns from such sleeps that were reported by a trap.
    pub unblocked: AtomicU64,
    /// The number of sleeps that could not be reported.
    pub missed: AtomicU64,
    /// The time of the last *Blocked*, in nanoseconds of CLOCK_MONOTONIC.
    pub stamp: AtomicU64,
    /// The number of times that the kernel thread has begun to carry a VP. A thread that took a VP
    /// away compares it to detect that the kernel thread has received another VP since.
    pub(crate) times: AtomicU64,
}

// The layout holds only outside of loom, whose atomics have other sizes.
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
    /// Creates a masked slot without a VP.
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

    /// Resets the slot for a new kernel thread, its only writer. Other threads may still read the
    /// slot.
    pub(crate) fn renew(&self, tid: u32) {
        self.masked.store(1, Ordering::Relaxed);
        self.vp.store(0, Ordering::Relaxed);
        self.wanted.store(0, Ordering::Relaxed);
        self.pending.store(0, Ordering::Relaxed);
        self.priority.store(NO_PRIORITY, Ordering::Relaxed);
        self.microprocess.store(0, Ordering::Relaxed);
        self.tid.store(tid, Ordering::Release);
    }

    /// Puts a VP into the slot. Called by the owning kernel thread while masked, or by the thread
    /// that hands over a VP to a waiting owner.
    pub fn install(&self, token: u64) {
        debug_assert!(token != 0 && token & (CLAIMING | LENT) == 0);
        self.vp.store(token, Ordering::Release);
    }

    /// Takes the VP out of the slot. Called by the owning kernel thread while masked.
    pub fn remove(&self) {
        self.vp.store(0, Ordering::Release);
    }

    /// Returns whether an event is pending. Called by any kernel thread; the result may be out of
    /// date.
    pub(crate) fn has_pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) & !(PROBE | WANTED) != 0
    }

    /// Returns the nesting depth of the mask. Called by the owning kernel thread.
    pub fn depth(&self) -> u32 {
        self.masked.load(Ordering::Relaxed)
    }

    /// Returns whether the carrier is inside the user scheduler or another critical section. Called
    /// by any kernel thread; the result may be out of date.
    pub fn is_masked(&self) -> bool {
        self.masked.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the slot has a VP. Called by the owning kernel thread while masked; for
    /// other threads the result may be out of date.
    pub fn has_vp(&self) -> bool {
        self.vp.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the slot has `vp`, neither lent nor claimed. Called by any kernel thread;
    /// the result may be out of date.
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
