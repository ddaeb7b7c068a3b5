//! The part of Kumihimo that depends on the processor and the C library: context switch, stacks,
//! thread-local storage and stack overflow reports.
//!
//! This crate is internal: its interface changes without notice. Programs use `kumihimo`.
//!
//! Each architecture has one folder, and exactly one folder is compiled in:
//!
//! - `x86_64/`, `aarch64/`: Linux with glibc on these processors. Microprocesses have their own
//!   stacks and TLS blocks. If the self-test fails, each microprocess is a kernel thread (1:1).
//!   `glibc/` has what both have in common.
//! - `fallback/`: every other Linux target (musl, other processors). Each microprocess is a kernel
//!   thread (1:1).
//!
//! The folders provide the same modules with the same functions. `seam.rs` lists them, and the
//! compiler checks the list on every target. The functions that only microprocesses need are
//! unreachable in the fallback: [`tls::get`] reports [`tls::Kind::Kernel`], and [`tls::Tls::build`]
//! fails with `Unsupported`.
//!
//! - [`cpu`]: the context switch; the thread pointer (FS on x86_64), which is the address of the
//!   running TLS block; the kernel thread's record (GS on x86_64).
//! - [`copy`]: copies of memory that another process may write at the same time.
//! - [`tls`]: one block of thread-local storage for each microprocess, in the form of a thread
//!   block of the C library.
//! - [`inject`]: a call from a signal handler into the code that the signal interrupted;
//!   [`regions`]: the code into which no call is injected.
//! - [`interrupted`]: the registers that a signal handler receives.
//! - [`thread_start`]: a thread that std prepares and a microprocess runs.
//! - [`time`]: the processor's counter of time.
//! - `program`: the functions of this crate that `crates/interpose` replaces once more.
//! - [`kernel`]: system calls by the names of the C library.
//! - [`descriptor`]: descriptors of the runtime, which a program may have closed.
//! - [`stack`]: slots of address space with guards, in slabs that are never unmapped.
//! - [`thread_attributes`]: what the kernel keeps per thread, and a program changes through the C
//!   library.
//! - [`kernel_attributes`], [`signal_mask`]: the same of a kernel thread, for the runtime's own
//!   threads; [`irrevocable`]: what it cannot set back there.
//! - [`overflow`]: the report of a stack overflow.
//!
//! This crate does not depend on scheduling. It detects at run time which features the machine
//! lacks, and replaces them ([`tls::Kind`], `KUMI_LAB=guard=...`, `KUMI_LAB=fsbase=...`).

#[cfg(not(target_os = "linux"))]
compile_error!(
    "kumihimo-arch supports Linux only; on other systems, the crate kumihimo is built on std without it"
);

#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
mod x86_64;
#[cfg(all(target_arch = "x86_64", target_env = "gnu"))]
use x86_64 as machine;

#[cfg(all(target_arch = "aarch64", target_env = "gnu"))]
mod aarch64;
#[cfg(all(target_arch = "aarch64", target_env = "gnu"))]
use aarch64 as machine;

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
mod glibc;
#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
use glibc as library;

#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu")))]
mod fallback;
#[cfg(not(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu")))]
use {fallback as library, fallback as machine};

pub use library::{is_in_system_call, regions, system_call, thread_start, tls, while_executing};
pub use machine::{HAS_MICROPROCESSES, copy, cpu, inject, interrupted, time};

#[cfg(all(any(target_arch = "x86_64", target_arch = "aarch64"), target_env = "gnu"))]
pub use library::program;

pub mod descriptor;
pub mod kernel;
pub mod kernel_attributes;
pub use kernel_attributes::irrevocable;
mod kind;
pub mod lock;
pub use lock::hold_still;
pub mod overflow;
pub mod queued_signal;
mod seam;
pub mod signal_mask;
pub mod stack;
pub mod thread_attributes;
