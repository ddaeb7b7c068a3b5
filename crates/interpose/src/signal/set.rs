//! Signals as bits of the kernel's words.

use std::ffi::c_int;

/// The bit of a signal in the kernel's word.
pub(crate) fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Whether the number is a signal that a program may use.
pub(crate) fn is_signal(signal: c_int) -> bool {
    (1..=64).contains(&signal)
}
