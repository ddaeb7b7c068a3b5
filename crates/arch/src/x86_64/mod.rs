//! x86_64 Linux with glibc: everything that microprocesses need.

pub mod cpu;
mod exec;
pub use exec::while_executing;
pub mod inject;
pub mod interrupted;
pub mod regions;
pub mod time;
pub mod tls;
