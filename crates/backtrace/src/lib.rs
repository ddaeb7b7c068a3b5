//! Where a stack is in its program.
//!
//! `memory` copies it, whatever becomes of it meanwhile; [`unwind`] walks the copy by the unwind
//! tables of all that is loaded; [`symbols`] finds names and lines. Nothing here runs on the stack
//! in question, nor holds it still. Used by the runtime's dumps (of microprocesses that wait) and
//! by the watchdog (of kernel threads that are stuck).
//!
//! Names are looked up by recursion over debug information: on a kernel thread with [`STACK`]
//! bytes.

mod memory;
pub mod symbols;
pub mod unwind;

pub use memory::copy;
pub use symbols::Symbols;
pub use unwind::{From, Trace, Walker};

/// Bytes of stack that looking up names may need.
pub const STACK: usize = 2 << 20;
