//! Preemption: interrupts a kernel thread that runs in user mode.
//!
//! - [`doorbell`]: perf clocks and signals that interrupt a thread, so that it enters the
//!   scheduler.
//! - `signal_handler`: installs handlers beside the application's.
//! - [`cpu_profiler`]: samples running threads for a profile.
//! - [`thread_sampler`]: copies the stack of an interrupted thread.
//!
//! A caller rings a doorbell. The signal handler (`pool::trap`) runs on the interrupted thread and
//! calls the user scheduler. The room uses `source`, `linux`, `handoff` and `report`.

pub mod cpu_profiler;
pub mod doorbell;
pub(crate) mod signal_handler;
pub mod thread_sampler;

pub use doorbell::{DEFAULT_SIGNAL, DOORBELL, Means, choose, probe};
