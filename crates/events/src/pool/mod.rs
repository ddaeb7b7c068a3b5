//! Pool: the kernel's half of a scheduler, its kernel threads, and the VPs that they carry.
//!
//! - `state`: what the pool's threads share: the list of ready VPs, the timekeeper's state,
//!   records.
//! - `interface`: the kernel's half, a kernel thread, and the user scheduler's side (P0, 3.1).
//! - `observe`: counters, samples, and whether a waiter's VP can still come.
//! - `requests`: calls of the user scheduler, and the supervision of it.
//! - `spare`: a kernel thread without a VP: its start, its life, its polls, and its claim of a
//!   sleeper's VP.
//! - [`trap`]: the signal handlers.
//!
//! Reports of an event source flow into the pool, calls of the user scheduler flow out. The room
//! uses `watchdog` (its state), `preempt`, `source`, `linux`, `handoff` and `report`.

mod interface;
mod observe;
mod requests;
mod spare;
mod state;
pub mod trap;

pub use interface::{kernel, kernel_thread, sched};
pub use observe::counts;
pub use requests::unparker::Unparker;
pub(crate) use spare::poll;
pub use state::record;
pub(crate) use state::{pending_starts, ready_list, timekeeper};
