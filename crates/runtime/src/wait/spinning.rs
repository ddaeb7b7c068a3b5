//! Spinning: a thread that spins for a lock checks whether the holder runs at all (P0, 3.2).
//!
//! A microprocess that was preempted, or sleeps in the kernel, releases nothing; a spinner
//! meanwhile keeps a VP from runnable microprocesses, perhaps from the holder itself. So the holder
//! of a spin lock registers ([`hold`]), and the spinner asks, once in a while, whether the holder
//! is on a VP ([`Pause`]). If not, it gives way.
//!
//! The registration is a hint: a table of a thousand places by the lock's address, in which two
//! locks may meet. A wrong answer costs a switch.

use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use kumihimo_policy::Why;

use crate::kernel_thread::gs_record::current_mp;
use crate::microprocess::wait_reason::Wait;
use crate::scheduler::carrier::Carrier;
use crate::scheduler::instance::{self, Instance};
use crate::wait::park;

const PLACES: usize = 1024;
static HOLDERS: [AtomicU64; PLACES] = [const { AtomicU64::new(0) }; PLACES];

/// How many turns a waiter spins before it looks, and between two looks.
const LOOK_EVERY: u32 = 100;
/// How long it sleeps at every second look that finds the holder away.
const NAP: Duration = Duration::from_micros(100);

fn place<T: ?Sized>(lock: *const T) -> &'static AtomicU64 {
    let hash = (lock.cast::<()>().addr() >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &HOLDERS[hash >> (usize::BITS - PLACES.trailing_zeros())]
}

/// The calling microprocess holds a spin lock as long as this lives. See [`hold`].
#[derive(Debug)]
#[must_use = "the lock counts as held as long as this lives"]
pub struct Holding {
    place: Option<&'static AtomicU64>,
    _not_send: PhantomData<*const ()>,
}

/// Says that the caller holds the spin lock at `lock`, a type of one's own; the address alone is
/// used. Costs two stores.
///
/// While it is not on a virtual processor (preempted, asleep in the kernel) those that [`Pause`]
/// for the same lock do something else. On a kernel thread that is no microprocess it does nothing:
/// the kernel schedules it. To keep the holder from being preempted at all see
/// [`NoEvents`](crate::NoEvents).
#[inline]
pub fn hold<T: ?Sized>(lock: *const T) -> Holding {
    let place = current_mp().map(|mp| {
        let place = place(lock);
        place.store(mp.id(), Ordering::Relaxed);
        place
    });
    Holding { place, _not_send: PhantomData }
}

impl Drop for Holding {
    #[inline]
    fn drop(&mut self) {
        if let Some(place) = self.place {
            place.store(0, Ordering::Relaxed);
        }
    }
}

/// A busy wait for one spin lock.
#[derive(Debug, Default)]
pub struct Pause {
    turns: u32,
}

impl Pause {
    /// Before the first turn.
    #[must_use]
    pub const fn new() -> Pause {
        Pause { turns: 0 }
    }

    /// One turn of waiting for the spin lock at `lock`, in place of [`std::hint::spin_loop`]: a
    /// moment; or, if the holder said that it is one ([`hold`]) and does not run, others' turn. May
    /// switch; blocks the microprocess. Not a cancellation point.
    #[inline]
    pub fn turn<T: ?Sized>(&mut self, lock: *const T) {
        self.turns = self.turns.wrapping_add(1);
        if self.turns.is_multiple_of(LOOK_EVERY) {
            look(place(lock), self.turns / LOOK_EVERY);
        } else {
            std::hint::spin_loop();
        }
    }
}

#[cold]
fn look(place: &AtomicU64, looks: u32) {
    let holder = place.load(Ordering::Relaxed);
    if holder == 0
        || current_mp().is_none()
        || instance::visit(|instance| instance.is_none_or(|i| i.runs(holder)))
    {
        return;
    }
    if looks.is_multiple_of(2) {
        // The holder may be of a lower level than those that yield to each other here.
        park::park(Wait::Sleep, Some(Instant::now() + NAP));
    } else if let Some(carrier) = Carrier::regain() {
        carrier.give_way(Why::Yielded);
    }
}

impl Instance {
    /// Whether the microprocess `id` is on a virtual processor. Out of date at once.
    fn runs(&self, id: u64) -> bool {
        (0..self.vps.len() as u32)
            .filter_map(|vp| self.kernel.carrier(vp).filter(|slot| slot.carries(vp)))
            .any(|slot| slot.microprocess.load(Ordering::Relaxed) == id)
    }
}
