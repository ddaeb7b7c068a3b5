//! The claim of a VP on its core: its seat at the board, and the state of its requests.

use std::cell::{Cell, UnsafeCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

use kumihimo_arbiter::seat::{Seat, SeatStatus};
use kumihimo_trace::ring::Ring;

use crate::trace_hooks;

/// Time after which a computing microprocess is interrupted to book its CPU time, where that makes
/// a difference, in nanoseconds.
pub(crate) const BOOK_AT_LATEST: u64 = 4_000_000;

/// The claim. The plain cells belong to the owner of the VP.
pub(crate) struct CoreClaim {
    /// The seat; `None` if the VP takes no part in arbitration.
    pub(crate) seat: Option<UnsafeCell<Seat>>,
    /// Status of the seat, readable by any thread.
    pub(crate) holds: Option<SeatStatus>,
    /// Whether the core belongs to another VP, so that nothing may run here.
    pub(crate) lost: Cell<bool>,
    /// When CPU time was booked last, on the instance's clock. Written by the carrier; any thread
    /// may read it.
    pub(crate) booked: AtomicU64,
    /// When notifications were last flushed at a clock check.
    pub(crate) rang: Cell<u64>,
    /// Whether the kernel already has the slice for a low level
    /// ([`crate::kernel_thread::kernel_slice`]). Written by the carrier; any thread may read it.
    pub(crate) is_low: AtomicBool,
}

impl CoreClaim {
    pub(crate) fn new(seat: Option<Seat>) -> CoreClaim {
        let holds = seat.as_ref().map(Seat::holds);
        let (booked, is_low) = (AtomicU64::new(0), AtomicBool::new(false));
        let (lost, rang) = (Cell::new(false), Cell::new(0));
        CoreClaim { seat: seat.map(UnsafeCell::new), holds, lost, booked, rang, is_low }
    }

    /// Records the seat's changes to the board in `trace`.
    pub(crate) fn traced(self, trace: Option<&Arc<Ring>>) -> CoreClaim {
        let note = |seat: Seat| match trace {
            Some(ring) => seat.noted(trace_hooks::changes(ring)),
            None => seat,
        };
        CoreClaim { seat: self.seat.map(|seat| note(seat.into_inner()).into()), ..self }
    }
}
