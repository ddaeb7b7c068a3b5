//! Spin locks: a spinning thread checks whether the lock holder is running at all (paper P0, 3.2).
//!
//! A holder that was preempted, or sleeps in the kernel, releases nothing. A spinner meanwhile
//! occupies a VP that runnable microprocesses need, perhaps the holder itself. So the holder of a
//! spin lock registers ([`hold`]), and the spinner checks once in a while whether the holder is on
//! a VP ([`Pause`]). If not, the spinner gives way.
//!
//! The registration is a hint: a table of a thousand places, hashed by the lock's address, in which
//! two locks may collide. A wrong result costs one switch.

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

/// Number of turns between two checks of the holder.
const LOOK_EVERY: u32 = 100;
/// How long the spinner sleeps at every second check that finds the holder off its VP.
const NAP: Duration = Duration::from_micros(100);

fn place<T: ?Sized>(lock: *const T) -> &'static AtomicU64 {
    let hash = (lock.cast::<()>().addr() >> 3).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &HOLDERS[hash >> (usize::BITS - PLACES.trailing_zeros())]
}

/// Registration of the calling microprocess as the holder of a spin lock, as long as this lives.
/// See [`hold`].
///
/// # Examples
///
/// ```
/// use kumihimo::sync::spinning::hold;
/// use std::sync::atomic::{AtomicBool, Ordering::{Acquire, Release}};
///
/// static LOCKED: AtomicBool = AtomicBool::new(false);
/// assert!(!LOCKED.swap(true, Acquire));
/// let holding = hold(&raw const LOCKED);
/// // ... the critical section ...
/// drop(holding); // before the release: the next holder registers then
/// LOCKED.store(false, Release);
/// ```
#[derive(Debug)]
#[must_use = "the lock counts as held as long as this lives"]
pub struct Holding {
    place: Option<&'static AtomicU64>,
    _not_send: PhantomData<*const ()>,
}

/// Registers the caller as the holder of the spin lock at `lock`. The lock may have any type; only
/// its address is used. Costs two stores.
///
/// While the holder is not on a VP (preempted, asleep in the kernel), threads that [`Pause`] for
/// the same lock give way. Does nothing on a kernel thread that runs no microprocess, because the
/// kernel schedules that one. To prevent preemption of the holder altogether, see
/// [`NoEvents`](crate::NoEvents).
///
/// # Examples
///
/// ```
/// use kumihimo::sync::spinning::{Pause, hold};
/// use std::sync::atomic::{AtomicBool, Ordering::{Acquire, Release}};
///
/// static LOCKED: AtomicBool = AtomicBool::new(false);
///
/// fn locked<R>(section: impl FnOnce() -> R) -> R {
///     let mut pause = Pause::new();
///     while LOCKED.swap(true, Acquire) {
///         pause.turn(&raw const LOCKED);
///     }
///     let holding = hold(&raw const LOCKED);
///     let result = section();
///     drop(holding);
///     LOCKED.store(false, Release);
///     result
/// }
///
/// assert_eq!(locked(|| 6 * 7), 42);
/// ```
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
///
/// # Examples
///
/// ```
/// use kumihimo::sync::spinning::Pause;
/// use kumihimo::thread;
/// use std::sync::atomic::{AtomicBool, Ordering};
///
/// let locked = AtomicBool::new(true);
/// thread::scope(|s| {
///     s.spawn(|| locked.store(false, Ordering::Release));
///     let mut pause = Pause::new();
///     while locked.load(Ordering::Acquire) {
///         pause.turn(&raw const locked);
///     }
/// });
/// assert!(!locked.into_inner());
/// ```
#[derive(Debug, Default)]
pub struct Pause {
    turns: u32,
}

impl Pause {
    /// Creates the state for a new busy wait.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::spinning::Pause;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// static LOCKED: AtomicBool = AtomicBool::new(false);
    /// let mut pause = Pause::new();
    /// while LOCKED.swap(true, Ordering::Acquire) {
    ///     pause.turn(&raw const LOCKED);
    /// }
    /// assert!(LOCKED.load(Ordering::Relaxed), "the lock is acquired");
    /// ```
    #[must_use]
    pub const fn new() -> Pause {
        Pause { turns: 0 }
    }

    /// Waits for one turn for the spin lock at `lock`, in place of [`std::hint::spin_loop`]. Spins
    /// for a moment, or lets other microprocesses run if the holder has registered ([`hold`]) and
    /// does not run. May switch; blocks the microprocess. Not a cancellation point.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::sync::spinning::{Pause, hold};
    /// use kumihimo::thread;
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    ///
    /// let locked = AtomicBool::new(true);
    /// thread::scope(|s| {
    ///     s.spawn(|| {
    ///         let holding = hold(&raw const locked);
    ///         thread::sleep(Duration::from_millis(1));
    ///         drop(holding);
    ///         locked.store(false, Ordering::Release);
    ///     });
    ///     // The holder sleeps, so this microprocess lets others run.
    ///     s.spawn(|| {
    ///         let mut pause = Pause::new();
    ///         while locked.load(Ordering::Acquire) {
    ///             pause.turn(&raw const locked);
    ///         }
    ///     });
    /// });
    /// assert!(!locked.into_inner());
    /// ```
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
        // Sleeps, because the holder's level may be lower than the level of the spinners that yield
        // to each other here.
        park::park(Wait::Sleep, Some(Instant::now() + NAP));
    } else if let Some(carrier) = Carrier::regain() {
        carrier.give_way(Why::Yielded);
    }
}

impl Instance {
    /// Whether the microprocess `id` is on a VP. The result may be out of date at once.
    fn runs(&self, id: u64) -> bool {
        (0..self.vps.len() as u32)
            .filter_map(|vp| self.kernel.carrier(vp).filter(|slot| slot.carries(vp)))
            .any(|slot| slot.microprocess.load(Ordering::Relaxed) == id)
    }
}
