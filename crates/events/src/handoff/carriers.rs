//! Carriers: the owner of each virtual processor, by name.
//!
//! A VP is in exactly one place: in the slot of the kernel thread that carries it, on its way to a
//! kernel thread that it was handed to, in the list of called VPs, or in the pool's ready list.
//! These words name the first three for other threads. The slot's `vp` decides; the words follow
//! it.

use crate::handoff::slot::{self, Claim, NO_PRIORITY, Slot};
use crate::handoff::thread_state::{BOUND, ThreadState};
use crate::loom::atomic::{AtomicI32, AtomicU32, Ordering, fence};
use crate::report::fatal::{BoundedBackoff, fatal};

/// In `called`: no call is pending.
const NOT_CALLED: i32 = NO_PRIORITY - 1;

/// The carriers of the VPs of one scheduler.
#[derive(Debug)]
pub struct Carriers {
    /// The slot of the kernel thread that carries each VP; 0: none.
    carriers: Box<[AtomicU32]>,
    /// The slot of the kernel thread that each VP was handed to, until that thread carries it; 0:
    /// none.
    handed: Box<[AtomicU32]>,
    /// The priority with which each VP was [called](Carriers::call).
    called: Box<[AtomicI32]>,
}

impl Carriers {
    /// Creates the words of `vps` VPs without a carrier.
    #[must_use]
    pub fn new(vps: u32) -> Carriers {
        Carriers {
            carriers: (0..vps).map(|_| AtomicU32::new(0)).collect(),
            handed: (0..vps).map(|_| AtomicU32::new(0)).collect(),
            called: (0..vps).map(|_| AtomicI32::new(NOT_CALLED)).collect(),
        }
    }

    fn vps(&self) -> u32 {
        self.carriers.len() as u32
    }

    /// Returns the slot of the kernel thread that carries `vp`; 0: none. Called by any kernel
    /// thread; the result may be out of date.
    #[inline]
    #[must_use]
    pub fn of(&self, vp: u32) -> u32 {
        self.carriers[vp as usize].load(Ordering::Relaxed)
    }

    /// Returns [`of`](Carriers::of) all VPs.
    pub(crate) fn all(&self) -> impl Iterator<Item = u32> + '_ {
        self.carriers.iter().map(|index| index.load(Ordering::Relaxed))
    }

    /// Makes the kernel thread of `slot`, which is `index`, the carrier of VP `token`. Calls
    /// `before` when the VP has its name and the slot does not have it yet. Called by that thread,
    /// masked and without a VP.
    ///
    /// # Panics
    /// If there is no such VP.
    pub fn begin(&self, slot: &Slot, index: u32, token: u64, before: impl FnOnce()) {
        let vp = slot::vp_of(token, self.vps()).expect("a token of this scheduler's");
        self.carriers[vp as usize].store(index, Ordering::Relaxed);
        self.handed[vp as usize].store(0, Ordering::Relaxed);
        // The state stays bound until the VP is installed, so that a thread that searches for the
        // microprocess finds it at any time.
        let bound = slot.state.load(Ordering::Relaxed) & BOUND;
        slot.state.store(ThreadState::User as u32 | bound, Ordering::Relaxed);
        before();
        slot.install(token);
        // Pairs with the fence in `Kernel::raise`.
        fence(Ordering::SeqCst);
    }

    /// Notes that the kernel thread of slot `index` carries `vp` no longer. Returns false if it did
    /// not carry it.
    pub fn clear(&self, vp: u32, index: u32) -> bool {
        // Relaxed: the slot's `vp` or the pool's lock orders this access.
        self.carriers[vp as usize]
            .compare_exchange(index, 0, Ordering::Relaxed, Ordering::Relaxed)
            .is_ok()
    }

    /// Claims the VP of `slot`, which is `index`, with one of the slot's claims. Returns the VP's
    /// number and token: the VP is then the caller's, and has no carrier.
    ///
    /// # Panics
    /// Aborts if the slot gave up a VP that its kernel thread does not carry: the VP would have no
    /// carrier, or two.
    pub fn take_over(
        &self,
        slot: &Slot,
        index: u32,
        claim: fn(&Slot) -> Claim,
    ) -> Option<(u32, u64)> {
        let Claim::Taken(token) = claim(slot) else { return None };
        let Some(vp) = slot::vp_of(token, self.vps()).filter(|vp| self.clear(*vp, index)) else {
            fatal(format_args!(
                "slot {index} gave up {token:#x}, which its kernel thread does not carry"
            ));
        };
        Some((vp, token))
    }

    /// Waits until the thread that took `vp` from slot `index` has cleared the carrier, which it
    /// does at once. Called by the kernel thread that lost the VP.
    ///
    /// # Panics
    /// Aborts if no thread took it.
    pub fn await_clear(&self, vp: u32, index: u32) {
        let mut backoff = BoundedBackoff::default();
        while self.of(vp) == index {
            if !backoff.snooze() {
                fatal(format_args!(
                    "slot {index} has no VP, but its kernel thread carries VP {vp}, which no thread took"
                ));
            }
        }
    }

    /// Notes that `vp` was handed to the kernel thread of slot `thread`.
    pub fn hand(&self, vp: u32, thread: u32) {
        self.handed[vp as usize].store(thread, Ordering::Relaxed);
    }

    /// Returns the slot of the kernel thread that `vp` was handed to; 0: none.
    pub(crate) fn handed(&self, vp: u32) -> u32 {
        self.handed[vp as usize].load(Ordering::Relaxed)
    }

    /// Leaves `vp`, which has no carrier, to the next thread that [takes](Carriers::take_called)
    /// the called VPs. Async-signal-safe.
    pub fn call(&self, vp: u32, priority: Option<u8>) {
        // Release: pairs with the swap in `take_called`.
        self.called[vp as usize].store(priority.map_or(NO_PRIORITY, i32::from), Ordering::Release);
    }

    /// Passes each VP that was called to `take`, as a token with its priority.
    pub fn take_called(&self, mut take: impl FnMut(u64, Option<u8>)) {
        for (vp, called) in (0u32..).zip(&self.called) {
            if called.load(Ordering::Relaxed) != NOT_CALLED {
                let priority = called.swap(NOT_CALLED, Ordering::Acquire);
                take(slot::token(vp), u8::try_from(priority).ok());
            }
        }
    }
}
