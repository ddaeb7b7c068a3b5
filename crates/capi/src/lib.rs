//! Kumihimo for C and C++: the functions of `include/kumihimo.h`, which documents them for their
//! callers. One module serves one header of `include/kumihimo`;
//! `sync` and `gate` have several.
//!
//! Conventions: a function returns 0 or a positive errno, like pthreads functions, and stores a
//! message for [`error::kumi_error_text`]. Handles are opaque. Every argument is checked as far as
//! possible. Nothing unwinds into C. A panic becomes `ENOTRECOVERABLE`. A cancellation becomes
//! `ECANCELED`, and takes effect again at the microprocess's next cancellation point outside of C.
#![deny(unsafe_op_in_unsafe_fn)]
// kumihimo.h states the safety contract of all functions in one place.
#![allow(clippy::missing_safety_doc)]

pub mod error;
pub mod gate;
pub mod net;
pub mod object;
pub mod options;
mod sized;
pub mod sync;
pub mod thread;
pub mod time;

/// Version of kumihimo.h that this library implements: `major << 16 | minor << 8 | patch`, as
/// `KUMI_VERSION`.
pub const VERSION: u32 = 0x00_02_00;

/// Returns the library's version, for comparison with `KUMI_VERSION`.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_version() -> u32 {
    VERSION
}
