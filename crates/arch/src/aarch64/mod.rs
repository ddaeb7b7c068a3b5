//! AArch64 Linux with glibc: the full implementation of microprocesses.

pub mod copy;
pub mod cpu;
pub mod inject;
pub mod interrupted;
pub(crate) mod pairs;
mod record;
mod signal_frame;
mod system_call;
pub(crate) use system_call::changes_port_access;
pub(crate) mod thread_block;
pub mod time;

/// Whether microprocesses can have stacks and TLS blocks of their own on this architecture.
pub const HAS_MICROPROCESSES: bool = true;
