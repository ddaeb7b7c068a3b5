//! x86_64 Linux with glibc: the full implementation of microprocesses.

pub mod cpu;
mod exec;
pub use exec::while_executing;
mod hook;
pub mod inject;
mod interpose;
pub mod interrupted;
pub mod program;
pub mod regions;
mod system_call;
pub use system_call::{is_in_system_call, system_call};
pub mod thread_start;
pub mod time;
pub mod tls;
pub(crate) use tls::next_sigaction;

/// Whether microprocesses can have stacks and TLS blocks of their own on this architecture.
pub const HAS_MICROPROCESSES: bool = true;
