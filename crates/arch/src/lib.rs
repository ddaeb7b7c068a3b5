//! Kumihimo's processor- and C-library-dependent part: context switch, stacks, thread-local storage, stack overflow.
//!
//! - [`x86_64`]: the switch itself, FS (who runs) and GS (where).
//! - [`stack`]: slots of address space with guards, in slabs that are never unmapped.
//! - [`tls`]: a block of thread-local storage for each microprocess, which the C library takes for a thread's.
//! - [`overflow`]: one clear line for a stack that is too small.
//! - [`inject`]: a call from a signal handler into the code that it interrupted; [`regions`]: code into which none is.
//! - [`time`]: the time-stamp counter.
//!
//! Nothing here knows of scheduling. Everything is x86_64 Linux with glibc; what a machine lacks is found out at run time and
//! replaced ([`tls::Kind`], `KUMI_GUARD`, `KUMI_FSBASE`).

#[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
compile_error!("Kumihimo runs on x86_64 Linux only");

mod exec;
pub use exec::while_executing;
pub mod inject;
mod lock;
pub use lock::hold_still;
pub mod overflow;
pub mod regions;
pub mod stack;
pub mod time;
pub mod tls;
pub mod x86_64;
