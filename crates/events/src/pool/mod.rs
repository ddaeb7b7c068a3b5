//! Pool: the kernel's half of a scheduler, its kernel threads, and the VPs that they carry.
//!
//! - [`kernel`]: the shared state, and the calls of a user scheduler.
//! - [`sched`]: the user scheduler's side of the interface (P0, 3.1).
//! - `kernel_thread`, `life`: a kernel thread, from its start through the pool to its end.
//! - `timekeeper`, `vp_wait`, [`record`]: ticks, stalled VPs, recorded steps.
//! - [`trap`]: the signal handlers.
//!
//! Reports of an event source flow in, calls of the user scheduler flow out. The room uses
//! `preempt`, `source`, `linux`, `handoff` and `report`.

pub mod kernel;
pub mod kernel_thread;
pub(crate) mod life;
pub mod record;
pub mod sched;
pub(crate) mod timekeeper;
pub mod trap;
mod vp_wait;
