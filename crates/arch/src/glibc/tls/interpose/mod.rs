//! Replacements and wrappers for C library functions that would misinterpret a microprocess's
//! block.
//!
//! - `attr`: pthread attributes.
//! - `dlopen`: loading and unloading of libraries.
//! - `fork`: fork handlers.
//! - `setxid`: setuid and related functions.
//!
//! Each handles microprocesses and forwards all other calls to the C library.

pub mod attr;
pub(crate) mod dlopen;
pub(crate) mod fork;
pub mod setxid;
