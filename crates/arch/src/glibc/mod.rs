//! Microprocesses on glibc: what every architecture with a folder of its own has in common.
//!
//! - [`tls`]: TLS blocks in the form of a thread block of the C library.
//! - [`interpose`]: functions of the C library that access what the kernel keeps per thread.
//! - [`exec`], [`thread_start`]: the exec family, and the start of a thread of std.
//! - [`hook`], [`program`]: names that `crates/interpose` replaces once more.
//! - [`refusal`]: why a call is not injected.
//! - [`regions`]: code into which no call is injected.
//! - [`mod@system_call`]: system calls that bypass the C library.
//!
//! The architecture's folder provides the few lines of assembly and the layout of the thread block
//! that these modules need (`thread_block.rs`).

mod exec;
pub use exec::while_executing;
mod hook;
mod interpose;
pub mod program;
pub mod refusal;
pub mod regions;
mod system_call;
pub use system_call::{is_in_system_call, system_call};
pub mod thread_start;
pub mod tls;
pub(crate) use tls::next_sigaction;
