//! x86_64 Linux with glibc: the full implementation of microprocesses.

pub mod cpu;
mod exec;
pub use exec::while_executing;
pub mod inject;
pub mod interrupted;
pub mod regions;
pub mod time;
pub mod tls;

/// Whether microprocesses can have stacks and TLS blocks of their own on this architecture.
pub const HAS_MICROPROCESSES: bool = true;
