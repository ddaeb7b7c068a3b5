//! Gates for C: the functions of `include/kumihimo.h`, which documents them for their callers.
//!
//! Conventions: a function returns 0 or a positive errno, as those of pthreads do, and leaves a
//! text for [`error::kumi_error_text`]. Handles are opaque. Every argument is checked that can be.
//! Nothing unwinds into C: a panic is `ENOTRECOVERABLE`, a cancellation `ECANCELED`, which the
//! microprocess feels again at its next cancellation point outside of C.
#![deny(unsafe_op_in_unsafe_fn)]
// What a caller has to keep to is in kumihimo.h, for all functions in one place.
#![allow(clippy::missing_safety_doc)]

pub mod bytes;
pub mod error;
pub mod gate;
pub mod options;
pub mod region;
pub mod serve;
mod threads;

/// Version of kumihimo.h that this library implements: `major << 16 | minor << 8 | patch`, as
/// `KUMI_VERSION` there.
pub const VERSION: u32 = 0x00_01_00;

/// The library's version, to be held against `KUMI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_version() -> u32 {
    VERSION
}
