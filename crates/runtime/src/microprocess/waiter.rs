//! Waiters: a microprocess or a foreign kernel thread that can be woken. `wait/park.rs` defines the
//! wake-up.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use kumihimo_policy::Priority;
use kumihimo_resource::id::Printed;

use crate::microprocess::foreign_thread::ForeignThread;
use crate::microprocess::prefetch::{prefetch, prefetch_stack};
use crate::microprocess::record::{Mp, Ref};

#[derive(Clone, Debug)]
pub(crate) enum Who {
    Micro(Ref),
    Foreign(Arc<ForeignThread>),
}

/// A waiter: a microprocess or a foreign kernel thread.
///
/// Waking a waiter that has ended does nothing.
#[derive(Clone)]
pub struct Waiter(Who);

impl PartialEq for Waiter {
    fn eq(&self, other: &Waiter) -> bool {
        match (&self.0, &other.0) {
            (Who::Micro(a), Who::Micro(b)) => a == b,
            (Who::Foreign(a), Who::Foreign(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }
}

impl Eq for Waiter {}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiter({})", Printed(self.id()))
    }
}

/// A mark is a record's address in units of its alignment (user addresses end at 2^47), below as
/// many bits of its generation as fit.
const MARK_ALIGN: u32 = align_of::<Mp>().trailing_zeros();

const MARK_GENERATION: u64 = 1 << (47 - MARK_ALIGN);

pub(crate) const NO_MARK: u64 = 1 << 62;

/// Number of bits of a thread ID (below 4,194,304; pid_max in proc_sys_kernel(5)).
const THREAD_BITS: u32 = 22;

/// Returns the kernel thread whose [`foreign_mark`](Waiter::foreign_mark) this is.
pub(crate) fn thread_of_mark(mark: u64) -> Option<i32> {
    (mark & NO_MARK != 0).then_some((mark & ((1 << THREAD_BITS) - 1)) as i32)
}

#[inline]
pub(crate) fn mark_of(mp: &Mp) -> u64 {
    mark(std::ptr::from_ref(mp).expose_provenance(), mp.state.generation())
}

#[inline]
fn mark(address: usize, generation: u64) -> u64 {
    // Wraps, because a generation has more bits than fit.
    address as u64 >> MARK_ALIGN | generation.wrapping_mul(MARK_GENERATION) & (NO_MARK - 1)
}

impl Waiter {
    pub(crate) fn of(who: Ref) -> Waiter {
        Waiter(Who::Micro(who))
    }

    /// Returns the living microprocess with this mark. Returns `None` for 0 and for any number of
    /// 2^62 or more.
    ///
    /// Other numbers must have been returned by [`mark`](Waiter::mark).
    pub fn of_mark(mark: u64) -> Option<Waiter> {
        if mark == 0 || mark >= NO_MARK {
            return None;
        }
        let at = ((mark & (MARK_GENERATION - 1)) as usize) << MARK_ALIGN;
        // SAFETY: `mark_of` made the mark from a record's address; records live for ever.
        let mp: &'static Mp = unsafe { &*std::ptr::with_exposed_provenance::<Mp>(at) };
        let who = mp.reference();
        (mark_of(mp) == mark && who.is_alive()).then(|| Waiter::of(who))
    }

    /// Returns a number for the calling kernel thread, whose waiter this is, as
    /// [`mark`](Waiter::mark) does for a microprocess: at least 2^62, below 2^63, and unique among
    /// the kernel threads. Reports read the thread's ID from it.
    pub fn foreign_mark(&self) -> u64 {
        let thread = kumihimo_arch::kernel::gettid() as u64 & ((1 << THREAD_BITS) - 1);
        NO_MARK | self.id() << THREAD_BITS & (NO_MARK - 1) | thread
    }

    pub(crate) fn of_foreign(who: Arc<ForeignThread>) -> Waiter {
        Waiter(Who::Foreign(who))
    }

    pub(crate) fn who(&self) -> &Who {
        &self.0
    }

    /// Prefetches the record, which a wake-up accesses.
    #[inline]
    pub(crate) fn prefetch_record(&self) {
        if let Who::Micro(who) = &self.0 {
            prefetch(std::ptr::from_ref(who.mp).cast());
        }
    }

    /// Prefetches the stack of a microprocess, as [`prefetch_stack`]. The record should be cached
    /// by then.
    #[inline]
    pub(crate) fn prefetch_stack(&self) {
        if let Who::Micro(who) = &self.0
            && who.is_alive()
        {
            prefetch_stack(who.mp);
        }
    }

    /// Returns an ID that is unique among the living waiters and never 0.
    pub fn id(&self) -> u64 {
        match &self.0 {
            Who::Micro(who) => who.id(),
            Who::Foreign(f) => f.id,
        }
    }

    /// Returns the effective priority, 0..=63. Foreign threads count as 32.
    pub fn priority(&self) -> u8 {
        match &self.0 {
            Who::Micro(who) => who.mp.effective(),
            Who::Foreign(_) => kumihimo_policy::Priority::DEFAULT.get(),
        }
    }

    /// Sets the own priority of a waiter that sleeps and that the caller is about to wake: the
    /// wake-up places it by its new priority. A microprocess that has not gone to sleep yet runs on
    /// as before, until it sets its own priority.
    pub fn set_priority_asleep(&self, priority: Priority) {
        if let Who::Micro(who) = &self.0
            && who.is_alive()
        {
            who.mp.priority.store(priority.get(), Ordering::Relaxed);
        }
    }

    /// Whether the waiter is a microprocess, and not a foreign kernel thread.
    pub fn is_microprocess(&self) -> bool {
        matches!(self.0, Who::Micro(_))
    }

    /// Whether the waiter has not ended yet. A kernel thread that is not 1:1 counts as alive.
    pub fn is_alive(&self) -> bool {
        match &self.0 {
            Who::Micro(who) => who.is_alive(),
            Who::Foreign(thread) => thread.one_to_one.is_alive(),
        }
    }
}

#[cfg(test)]
mod tests;
