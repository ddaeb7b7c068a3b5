//! Reports of the crate: errors of unavailable services, fatal errors, and text on standard error.
//!
//! - [`unavailable`]: the error of a service of the kernel that this machine lacks.
//! - `stderr_signal_safe`: writes to standard error in signal handlers.
//! - `fatal`: aborts on a corrupt shared page.
//!
//! The room prints to standard error and returns nothing to its callers. It uses only `loom`.

pub(crate) mod fatal;
pub(crate) mod stderr_signal_safe;
pub mod unavailable;
