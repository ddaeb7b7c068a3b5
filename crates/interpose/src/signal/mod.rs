//! Signals: each is handled by the thread that it is for, on the stack of that thread.
//!
//! The kernel runs every handler, by a frame on the stack of the microprocess. What it cannot know
//! is for which microprocess a signal is, so:
//!
//! - [`action`]: the program's handlers. The kernel has [`entry`] in their place, with their flags
//!   and masks.
//! - [`queue`]: signals that wait for one thread. [`send`] puts one there, interrupts the thread,
//!   and has the kernel thread on which it runs receive the same signal, as a *kick*.
//! - [`entry`]: what the kernel calls. A kick is looked up in the queue of the running thread,
//!   and is void if another one runs there by now. A signal that arrives inside this library or the
//!   runtime is put aside.
//! - [`section`]: the code in which no handler runs, and what happens at its end.
//! - [`mask`]: the mask of a thread, in the kernel and here.
//! - [`wait`]: sigwait(3), sigsuspend(2) and their like.
//! - [`process`]: signals for the process that no running thread takes, and timers that signal one
//!   thread.

pub(crate) mod action;
pub(crate) mod entry;
mod mask;
pub(crate) mod process;
mod queue;
pub(crate) mod section;
pub(crate) mod send;
mod wait;

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use kumihimo_runtime::park::Waiter;
use queue::Queue;

use crate::record::RECORD;

/// The bit of a signal in the kernel's word.
pub(crate) fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Whether the number is a signal that a program may use.
pub(crate) fn is_signal(signal: c_int) -> bool {
    (1..=64).contains(&signal)
}

/// The signals of a thread, in its [record](crate::record::Record).
pub(crate) struct Signals {
    /// Number of nested sections in which no handler runs.
    depth: Cell<u32>,
    queue: Queue,
    /// The thread's mask. That of a kernel thread is the kernel's.
    mask: AtomicU64,
    /// What the thread waits for in sigwait(3), on the kernel thread `waits_on`.
    waits_for: AtomicU64,
    waits_on: AtomicU32,
    /// Number of handlers that have run, and of those without SA_RESTART.
    handled: Cell<u64>,
    interrupting: Cell<u64>,
    /// Set before [`has_waiter`](Signals::has_waiter), and not changed after that.
    /// Not dropped: the end of a thread may come after its thread-local variables were dropped.
    waiter: UnsafeCell<MaybeUninit<Waiter>>,
    has_waiter: AtomicBool,
    /// Whether the thread is a microprocess that runs.
    is_alive: AtomicBool,
    pub(crate) cancel: crate::cancel::Cancel,
}

impl Signals {
    pub(crate) const fn new() -> Signals {
        Signals {
            depth: Cell::new(0),
            queue: Queue::new(),
            mask: AtomicU64::new(0),
            waits_for: AtomicU64::new(0),
            waits_on: AtomicU32::new(0),
            handled: Cell::new(0),
            interrupting: Cell::new(0),
            waiter: UnsafeCell::new(MaybeUninit::uninit()),
            has_waiter: AtomicBool::new(false),
            is_alive: AtomicBool::new(false),
            cancel: crate::cancel::Cancel::new(),
        }
    }

    /// The caller, so that others can wake it.
    fn waiter(&self) -> Option<&Waiter> {
        if !self.has_waiter.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: set before the flag, and not changed while the thread lives.
        Some(unsafe { (*self.waiter.get()).assume_init_ref() })
    }

    /// Notes how to wake the calling thread.
    pub(crate) fn note_waiter(&self) {
        if !self.has_waiter.load(Ordering::Relaxed) {
            // SAFETY: nobody reads it before the flag is set.
            unsafe { (*self.waiter.get()).write(kumihimo_runtime::park::current()) };
            self.has_waiter.store(true, Ordering::Release);
        }
    }

    /// Begins as a microprocess, the caller. Signals may have been sent to it already.
    pub(crate) fn begin(&self) {
        self.mask.store(mask::of_caller(), Ordering::SeqCst);
        self.note_waiter();
        // SeqCst, as the look after it: a sender stores the signal and then asks for the waiter.
        self.is_alive.store(true, Ordering::SeqCst);
        process::begin();
        section::look(self);
    }

    pub(crate) fn is_alive(&self) -> bool {
        self.is_alive.load(Ordering::SeqCst)
    }

    pub(crate) fn is_in_section(&self) -> bool {
        self.depth.get() != 0
    }

    /// The child of a fork begins without signals that wait; fork(2).
    pub(crate) fn forget(&self) {
        self.queue.clear();
    }

    /// Ends the calling thread's: what is pending goes with it.
    pub(crate) fn end(&self) {
        self.is_alive.store(false, Ordering::SeqCst);
        self.depth.set(self.depth.get() + 1);
        self.queue.clear();
    }
}

/// The signals of the calling thread.
#[inline]
pub(crate) fn own<'a>() -> &'a Signals {
    let own = RECORD.with(|record| std::ptr::from_ref(&record.signals));
    // SAFETY: in the thread's block, which lives as long as the thread.
    unsafe { &*own }
}
