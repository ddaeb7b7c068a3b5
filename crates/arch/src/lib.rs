//! Kumihimo: arch.

pub mod x86_64;
