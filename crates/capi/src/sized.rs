//! Structures of options that begin with their size, so that later versions may append fields.

use crate::error::Failure;
use crate::gate::bytes::non_null;

/// Largest size that is taken for one. Larger values are not from a header.
pub(crate) const MOST: usize = 4096;

/// A structure of options.
///
/// # Safety
/// `#[repr(C)]`, its first field is its size as a `usize`, and any bit pattern is valid for all
/// fields.
pub(crate) unsafe trait Sized: Copy {
    /// Size of the first version of the structure.
    const LEAST: usize;
    /// How a program initialises the structure.
    const INITIALISED_BY: &'static str;

    fn defaults() -> Self;
}

/// Copies a structure. Fields that the caller's version lacks have their defaults. E2BIG if a field
/// is set that this version lacks.
///
/// # Safety
/// `at` is NULL, or points to as many bytes as its first field states.
pub(crate) unsafe fn read<T: Sized>(at: *const T) -> Result<T, Failure> {
    // SAFETY: every version starts with its size.
    let size = *unsafe { non_null(at.cast::<usize>(), "options") }?;
    if !(T::LEAST..=MOST).contains(&size) {
        return Err(Failure::invalid(format!(
            "options of {size} bytes: begin with {}",
            T::INITIALISED_BY
        )));
    }
    let known = size.min(size_of::<T>());
    for at_byte in known..size {
        // SAFETY: the structure has that many bytes.
        if unsafe { at.cast::<u8>().add(at_byte).read() } != 0 {
            let text = format!(
                "options that this version of the library does not support: byte {at_byte} is set"
            );
            return Err(Failure::new(libc::E2BIG, text));
        }
    }
    let mut options = T::defaults();
    // SAFETY: `known` bytes exist, and are no more than this version's size. Any bit pattern is
    // valid for the fields.
    unsafe { std::ptr::copy_nonoverlapping(at.cast::<u8>(), (&raw mut options).cast(), known) };
    Ok(options)
}
