//! The paper's interface between the two halves: the events, and their receiver.
//!
//! Source: P0, sections 3.1 to 3.3. [`Kernel::init_sched`](crate::kernel::Kernel::init_sched) makes
//! a [`UserScheduler`] known; what it may ask of the kernel's half are the methods of
//! [`crate::kernel::Kernel`] and [`KernelThread`].

use std::time::Duration;

pub use crate::handoff::thread_state::{BOUND, Event, ThreadState};

use crate::pool::kernel_thread::KernelThread;

/// When the user scheduler wants to look at the time again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tick {
    /// Somebody runs: after this.
    Again(Duration),
    /// No microprocess runs: when [`Kernel::start_timekeeper`](crate::Kernel::start_timekeeper) is
    /// called, or after this at the latest.
    Rest(Option<Duration>),
}

/// Starvation: the pool is empty, no kernel thread can be started, and every one sleeps outside of
/// the user scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Starved {
    /// The time since a kernel thread last ran.
    pub since: std::time::Duration,
    /// Every thread waits on a futex without a timeout, so that only this process can wake it.
    pub for_good: bool,
}

/// When the user scheduler wants to hear of starvation again, if it lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StarvedReply {
    /// Never: it was reported.
    Done,
    /// Later, and the longer it lasts, the more rarely: something waits, and a call may return yet.
    Later,
    /// Soon: nothing waits for a VP, which can change at any time.
    NothingWaits,
}

/// What the user scheduler answers to *Blocked* (P0: the argument of `upcall_return`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A kernel thread shall carry the virtual processor. The priority of the next runnable
    /// microprocess, or none if it is the scheduler itself that has something to do there (timers,
    /// descriptors). It stands in the kernel thread's slot, and decides which of several virtual
    /// processors gets the next kernel thread.
    Next(Option<u8>),
    /// There is nothing to run: no kernel thread is used. The virtual processor is nobody's until
    /// [`Kernel::resume`](crate::kernel::Kernel::resume),
    /// [`Kernel::call`](crate::kernel::Kernel::call) or [`KernelThread::acquire_vp`].
    Nothing,
}

/// The user's half: told of events, on kernel threads of the pool.
///
/// Every call but [`unblocked`](UserScheduler::unblocked) and [`notified`](UserScheduler::notified)
/// comes on a kernel thread's own stack, with its slot masked.
pub trait UserScheduler: Send + Sync {
    /// The life of a kernel thread. Sets up what the scheduler wants on each, calls `live` once,
    /// and takes it down again.
    fn thread(&self, thread: &KernelThread, live: &mut dyn FnMut());

    /// *Blocked*: virtual processor `vp` was taken from a kernel thread whose microprocess sleeps.
    /// The caller has `vp` for this call.
    fn blocked(&self, vp: u32) -> Answer;

    /// *Resumed*: `thread` has come to carry `vp`. Runs microprocesses until the virtual processor
    /// is gone from the slot (P0: `yield`), or the scheduler ends.
    fn resumed(&self, vp: u32, thread: &KernelThread);

    /// *Unblocked*: the calling kernel thread is back from a sleep, its microprocess about to go on
    /// in user mode. In a signal handler: only what signal-safety(7) allows. It may wait there for
    /// its turn ([`KernelThread::wait_for_vp`]).
    fn unblocked(&self);

    /// *Preempted* and *Changed*, one or both ([`Event::bit`]): on the stack of the running
    /// microprocess, which has just unmasked its slot or passed a switch point.
    fn notified(&self, events: u32);

    /// *Preempted* or *Changed* waits in the calling kernel thread's slot, which was interrupted in
    /// user mode to hear of it: in a signal handler, with its context, which may be changed
    /// ([`kumihimo_arch::inject`]). False: not at this instruction; a little later, then with a
    /// larger `vain`.
    ///
    /// # Safety
    /// `context` is what the kernel gave the running handler.
    unsafe fn interrupted(&self, _context: *mut libc::ucontext_t, _vain: u32) -> bool {
        true
    }

    /// By the watchdog ([`crate::watchdog`]), some time after *Preempted* was raised for `vp`,
    /// where what runs has `priority`: whether something still waits that should run there instead.
    /// If so, a number that changes with whatever the scheduler does about it: with each switch on
    /// `vp`, say. On a kernel thread of the watchdog's own: reads atomics, and waits for nothing.
    /// Unless a scheduler says otherwise, what was raised stands as long as the same microprocess
    /// runs.
    fn outranked(&self, _vp: u32, _priority: i32) -> Option<u64> {
        Some(0)
    }

    /// By the watchdog: the kernel thread that carries `vp` is stuck in here (`off`), or no longer.
    /// What can go to another VP had better do so. As [`outranked`](UserScheduler::outranked).
    fn overridden(&self, _vp: u32, _off: bool) {}

    /// By the watchdog, for a report: writes the name of microprocess `id` into `out`, and returns
    /// its length. Waits for nothing.
    fn name_of(&self, _id: u64, _out: &mut [u8]) -> usize {
        0
    }

    /// Time passes: which quanta are over, and which microprocesses wait? On a kernel thread of the
    /// pool, one at a time; it may [`raise`](crate::Kernel::raise). Returns when it wants to look
    /// again.
    fn tick(&self) -> Tick {
        Tick::Rest(None)
    }

    /// Reports starvation ([`Starved`]). Called on the watchdog's thread, again and again while the
    /// reply asks for it.
    fn starved(&self, _starved: Starved) -> StarvedReply {
        StarvedReply::Done
    }

    /// The last kernel thread has left the pool, and no other can be started: a thread that waits
    /// for a VP may wait for a sleeping carrier
    /// ([`Kernel::release_waiters`](crate::Kernel::release_waiters)). Called on a kernel thread of
    /// the pool.
    fn no_spare(&self) {}

    /// What [`Kernel::watch_once`](crate::Kernel::watch_once) was asked to watch for `vp` is ready.
    /// On a kernel thread of the pool.
    fn ready(&self, _vp: u32) {}
}
