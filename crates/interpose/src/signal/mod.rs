//! Signals: each is handled by the thread that it is for, on the stack of that thread.
//!
//! The kernel runs every handler, by a frame on the stack of the microprocess. What it cannot know
//! is for which microprocess a signal is, so:
//!
//! - [`thread`]: what is kept of a thread; [`queue`]: signals that wait for it; [`set`].
//! - [`action`]: the program's handlers; [`handlers`]: the functions that install them. The kernel
//!   has [`entry`] in their place, with their flags and masks.
//! - [`send`] puts a signal into the queue of a thread, interrupts the thread, and has the kernel
//!   thread on which it runs receive the same signal, as a [`kick`].
//! - [`entry`]: what the kernel calls. A kick is looked up in the queue of the running thread, and
//!   is void if another one runs there by now. A signal that arrives inside this library or the
//!   runtime is put [`aside`].
//! - [`section`]: the code in which no handler runs, and what happens at its end.
//! - [`mask`]: the mask of a thread, in the kernel and here; [`mask_calls`]: the functions that
//!   change it.
//! - [`wait`]: sigwait(3), sigsuspend(2) and their like; [`system_v`]: older functions.
//! - [`cancel`]: pthread_cancel(3), which interrupts a thread as a signal does.
//! - [`process`]: signals for the process that no running thread takes, and timers that signal one
//!   thread.

mod action;
mod aside;
pub(crate) mod cancel;
pub(crate) mod entry;
pub(crate) mod handlers;
pub(crate) mod kick;
mod mask;
mod mask_calls;
pub(crate) mod process;
mod queue;
pub(crate) mod section;
pub(crate) mod send;
mod set;
mod system_v;
pub(crate) mod thread;
mod wait;
