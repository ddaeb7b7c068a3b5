//! Backtraces of stacks that may change while they are read.
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! `memory` copies a stack safely, [`unwind`] walks the copy by the unwind tables of the loaded
//! files, and [`symbols`] resolves names and lines. Nothing here runs on the stack in question or
//! stops its thread. Used by the runtime's dumps (of waiting microprocesses) and by the watchdog
//! (of stuck kernel threads).
//!
//! The resolution of names recurses over debug information. It needs a kernel thread with [`STACK`]
//! bytes of stack.

mod memory;
mod registers;
pub mod symbols;
pub mod unwind;

pub use memory::copy;
pub use symbols::Symbols;
pub use unwind::{From, Loaded, Trace, Walker};

/// The stack size in bytes that the resolution of names may need.
pub const STACK: usize = 2 << 20;
