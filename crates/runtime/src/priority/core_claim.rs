//! The claim of a virtual processor on its core: what the VP keeps of its seat at the board.

use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use kumihimo_arbiter::seat::{Holds, Seat};
use kumihimo_trace::ring::Ring;

use crate::trace_hooks;

/// After so many one that computes is interrupted to book, where that makes a difference.
pub(crate) const BOOK_AT_LATEST: u64 = 4_000_000;

/// The owner's half.
pub(crate) struct CoreClaim {
    /// None: it takes no part.
    pub(crate) seat: Option<UnsafeCell<Seat>>,
    /// By anyone.
    pub(crate) holds: Option<Holds>,
    /// The core is another's: nothing runs here.
    pub(crate) lost: Cell<bool>,
    /// When CPU time was booked last, on the instance's clock. By the carrier; anyone may read.
    pub(crate) booked: AtomicU64,
    /// When it last rang at a look at the clock.
    pub(crate) rang: Cell<u64>,
    /// The kernel knows by now that what runs here is of a low level:
    /// [`crate::kernel_thread::kernel_slice`]. By the carrier; anyone may read.
    pub(crate) is_low: AtomicBool,
}

impl CoreClaim {
    pub(crate) fn new(seat: Option<Seat>) -> CoreClaim {
        let holds = seat.as_ref().map(Seat::holds);
        let (booked, is_low) = (AtomicU64::new(0), AtomicBool::new(false));
        let (lost, rang) = (Cell::new(false), Cell::new(0));
        CoreClaim { seat: seat.map(UnsafeCell::new), holds, lost, booked, rang, is_low }
    }

    /// With what it changes at the board noted there.
    pub(crate) fn traced(self, trace: Option<&Arc<Ring>>) -> CoreClaim {
        let note = |seat: Seat| match trace {
            Some(ring) => seat.noted(trace_hooks::changes(ring)),
            None => seat,
        };
        CoreClaim { seat: self.seat.map(|seat| note(seat.into_inner()).into()), ..self }
    }
}
