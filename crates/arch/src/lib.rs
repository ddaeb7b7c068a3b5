//! Kumihimo's processor- and C-library-dependent part: context switch, stacks, thread-local
//! storage, stack overflow.
//!
//! Each architecture has one folder, and exactly one folder is compiled in:
//!
//! - `x86_64/`: target: x86_64 Linux with glibc; own stacks and TLS blocks; 1:1 where the self-test
//!   fails.
//! - `fallback/`: target: every other Linux: aarch64, musl; kernel threads 1:1.
//!
//! Both provide the same modules with the same functions; `seam.rs` lists them, and the compiler
//! checks the list on every target. The fallback compiles everywhere because nothing that only
//! microprocesses need can be reached there: [`tls::get`] reports [`tls::Kind::Kernel`], and
//! [`tls::Tls::build`] fails with `Unsupported`.
//!
//! - [`cpu`]: the switch itself; FS, the running TLS block; GS, the kernel thread's record.
//! - [`tls`]: a block of thread-local storage for each microprocess, which the C library takes
//!   for a thread's.
//! - [`inject`]: a call from a signal handler into the code that it interrupted; [`regions`]:
//!   code into which none is.
//! - [`interrupted`]: the registers that a signal handler receives.
//! - [`time`]: the time-stamp counter.
//! - [`stack`]: slots of address space with guards, in slabs that are never unmapped.
//! - [`overflow`]: one clear line for a stack that is too small.
//!
//! Nothing here depends on scheduling. What a machine lacks is found out at run time and replaced
//! ([`tls::Kind`], `KUMI_LAB=guard=...`, `KUMI_LAB=fsbase=...`).

#[cfg(not(target_os = "linux"))]
compile_error!(
    "kumihimo-arch is for Linux; on other systems the crate kumihimo stands on std alone"
);

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu"))]
use x86_64 as machine;

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
mod fallback;
#[cfg(not(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu")))]
use fallback as machine;

pub use machine::{
    HAS_MICROPROCESSES, cpu, inject, interrupted, regions, time, tls, while_executing,
};

mod kind;
mod lock;
pub use lock::hold_still;
pub mod overflow;
mod seam;
pub mod stack;
