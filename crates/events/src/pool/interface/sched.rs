//! The interface between the two halves (P0, 3.1 to 3.3): the events and their receiver.
//!
//! [`Kernel::init_sched`](crate::kernel::Kernel::init_sched) registers a [`UserScheduler`]. The
//! scheduler's requests to the kernel's half are the methods of [`crate::kernel::Kernel`] and
//! [`KernelThread`].

use std::time::Duration;

pub use crate::handoff::thread_state::{BOUND, Event, ThreadState};

use crate::pool::kernel_thread::KernelThread;
use crate::preempt::cpu_profiler::Running;

/// The time of the next call of [`UserScheduler::tick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// A microprocess runs: the next tick is due after this time.
    Again(Duration),
    /// No microprocess runs: the next tick is due when
    /// [`Kernel::start_timekeeper`](crate::Kernel::start_timekeeper) is called, or after this time
    /// at the latest.
    Rest(Option<Duration>),
}

/// Starvation: kernel threads that sleep outside of the user scheduler keep their VPs, and no
/// kernel thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starved {
    /// The time since a kernel thread last ran.
    pub since: std::time::Duration,
    /// Every VP is kept, and every thread waits on a futex without a timeout, so that only this
    /// process can wake it.
    pub for_good: bool,
    /// The reason why no other kernel thread takes the VPs over.
    pub cause: StarvedCause,
}

/// The reason why a kernel thread keeps its VP while it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StarvedCause {
    /// The pool is empty, and no kernel thread can be started.
    ThreadLimit,
    /// The event source is [`Kind::Off`](crate::source::Kind::Off), so nothing reports the sleep.
    NoSource,
}

/// The time of the next report of starvation, if starvation lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StarvedReply {
    /// Never: the user scheduler has reported it.
    Done,
    /// Later, at intervals that grow while starvation lasts: a microprocess waits, and a call may
    /// still return.
    Later,
    /// Soon: no microprocess waits for a VP, which can change at any time.
    NothingWaits,
}

/// The reply of the user scheduler to *Blocked* (P0: the argument of `upcall_return`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A kernel thread must carry the virtual processor. The value is the priority of the next
    /// runnable microprocess, or `None` if the scheduler itself has work there (timers,
    /// descriptors). The priority is written to the kernel thread's slot, and decides which of
    /// several virtual processors receives the next kernel thread.
    Next(Option<u8>),
    /// There is nothing to run, so no kernel thread is used. The virtual processor has no carrier
    /// until [`Kernel::resume`](crate::kernel::Kernel::resume),
    /// [`Kernel::call`](crate::kernel::Kernel::call) or [`KernelThread::acquire_vp`].
    Nothing,
}

/// The user's half: receives the events on kernel threads of the pool.
///
/// Every method but [`unblocked`](UserScheduler::unblocked) and
/// [`notified`](UserScheduler::notified) is called on a kernel thread's own stack, with its slot
/// masked.
pub trait UserScheduler: Send + Sync {
    /// Runs for the life of a kernel thread: sets up the scheduler's state for the thread, calls
    /// `live` once, and removes that state.
    fn thread(&self, thread: &KernelThread, live: &mut dyn FnMut());

    /// Returns whether [`thread`](UserScheduler::thread) sets the signal mask of a kernel thread,
    /// which begins with all signals blocked. Otherwise it gets the mask of the thread that opened
    /// the kernel's half.
    fn sets_signal_masks(&self) -> bool {
        false
    }

    /// Receives *Blocked*: virtual processor `vp` was taken from a kernel thread whose microprocess
    /// sleeps. The caller owns `vp` during this call.
    fn blocked(&self, vp: u32) -> Answer;

    /// Receives *Resumed*: `thread` begins to carry `vp`. Runs microprocesses until the slot has no
    /// virtual processor (P0: `yield`), or the scheduler ends.
    fn resumed(&self, vp: u32, thread: &KernelThread);

    /// Receives *Unblocked*: the calling kernel thread is back from a sleep, and its microprocess
    /// is about to continue in user mode. Called in a signal handler: only async-signal-safe
    /// functions are allowed (signal-safety(7)). May wait there for a VP
    /// ([`KernelThread::wait_for_vp`]).
    fn unblocked(&self);

    /// Receives *Preempted*, *Changed* or both ([`Event::bit`]). Called on the stack of the running
    /// microprocess, which has just unmasked its slot or passed a switch point.
    fn notified(&self, events: u32);

    /// Handles an interruption in user mode while *Preempted* or *Changed* is pending in the
    /// calling kernel thread's slot. Called in a signal handler with its context, which the
    /// scheduler may change ([`kumihimo_arch::inject`]). Returns false if that is impossible at
    /// this instruction. The call is then repeated a little later with a larger `vain`.
    ///
    /// # Safety
    /// `context` is the context that the kernel passed to the running handler.
    unsafe fn interrupted(&self, _context: *mut libc::ucontext_t, _vain: u32) -> bool {
        true
    }

    /// Returns the running microprocess if this stack pointer is in its stack. Called in a signal
    /// handler.
    fn running(&self, stack_pointer: usize) -> Option<Running> {
        let _ = stack_pointer;
        None
    }

    /// Returns whether a microprocess still waits that should run on `vp` instead of the running
    /// one, which has `priority`. The watchdog ([`crate::watchdog`]) calls this some time after
    /// *Preempted* was raised for `vp`.
    ///
    /// The result is `None` if none waits. Otherwise it is a number that changes with every step
    /// that the scheduler takes about it: with each switch on `vp`, for example. Called on the
    /// watchdog's own kernel thread: the implementation reads atomics and does not block. By
    /// default *Preempted* stays justified while the same microprocess runs.
    fn outranked(&self, _vp: u32, _priority: i32) -> Option<u64> {
        Some(0)
    }

    /// Notes that the kernel thread that carries `vp` is stuck in the user scheduler (`off`), or no
    /// longer is. The scheduler should move work from `vp` to other VPs. Called by the watchdog,
    /// with the restrictions of [`outranked`](UserScheduler::outranked).
    fn overridden(&self, _vp: u32, _off: bool) {}

    /// Writes the name of microprocess `id` into `out`, and returns its length. Called by the
    /// watchdog for a report; does not block.
    fn name_of(&self, _id: u64, _out: &mut [u8]) -> usize {
        0
    }

    /// Checks for quanta that have ended and microprocesses that wait. May
    /// [`raise`](crate::Kernel::raise) events. Returns the time of the next tick. Called on a
    /// kernel thread of the pool, by one thread at a time.
    fn tick(&self) -> Tick {
        Tick::Rest(None)
    }

    /// Reports starvation ([`Starved`]). Called on the watchdog's thread, repeatedly while the
    /// reply requests it.
    fn starved(&self, _starved: Starved) -> StarvedReply {
        StarvedReply::Done
    }

    /// Notes that the last kernel thread has left the pool and no other can be started. The carrier
    /// of a VP for which a thread waits may then sleep
    /// ([`Kernel::release_waiters`](crate::Kernel::release_waiters)). Called on a kernel thread of
    /// the pool, or on the one that starts those.
    fn no_spare(&self) {}

    /// Notes that the descriptor that [`Kernel::watch_once`](crate::Kernel::watch_once) watches for
    /// `vp` is ready. Called on a kernel thread of the pool.
    fn ready(&self, _vp: u32) {}
}
