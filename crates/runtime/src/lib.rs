//! The mechanism of Kumihimo: microprocesses on virtual processors.

pub mod cancel;
mod futex;
pub mod park;
pub mod readiness;
