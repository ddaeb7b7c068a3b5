//! Pool: the kernel's half of a scheduler, its kernel threads, and the VPs that they carry.
//!
//! - [`kernel`]: the shared state. [`sched`]: the user scheduler's side of the interface (P0, 3.1).
//! - `kernel_thread`, `life`: a kernel thread, from its start through the pool to its end.
//! - `poll`, `tick`: what a spare does while it waits. `take_over`: a spare claims a sleeper's VP.
//! - `carrier_requests`, `raise`, `vp_wait`: calls of the user scheduler.
//! - [`trap`]: the signal handlers. [`record`], `counts`, `sampling`: observation.
//!
//! Reports of an event source flow in, calls of the user scheduler flow out. The room uses
//! `watchdog` (its state), `preempt`, `source`, `linux`, `handoff` and `report`.

mod carrier_requests;
pub mod counts;
pub mod kernel;
pub mod kernel_thread;
mod life;
pub(crate) mod poll;
mod raise;
pub(crate) mod ready_list;
pub mod record;
mod sampling;
pub mod sched;
mod shortage;
mod supervision;
mod take_over;
mod tick;
pub(crate) mod timekeeper;
pub mod trap;
mod vp_wait;
