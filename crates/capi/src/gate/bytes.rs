//! Conversion and checks of C pointers and buffers.

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;
use std::slice;

use crate::error::Failure;

/// Name, size, and names and offsets of the fields of a C structure.
#[doc(hidden)]
pub type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

/// `kumi_bytes`: a buffer that the library allocates, the program keeps, and calls fill repeatedly.
#[repr(C)]
#[derive(Debug)]
pub struct Bytes {
    data: *mut u8,
    length: usize,
    capacity: usize,
}

impl Bytes {
    /// Takes the buffer out; `self` is empty until [`put`](Bytes::put).
    ///
    /// # Safety
    /// `self` is initialised, or was last written by this library.
    pub(crate) unsafe fn take(&mut self) -> Result<Vec<u8>, Failure> {
        let Bytes { data, length, capacity } = *self;
        if data.is_null() && length == 0 && capacity == 0 {
            return Ok(Vec::new());
        }
        if data.is_null() || capacity == 0 || length > capacity || capacity > isize::MAX as usize {
            return Err(Failure::invalid(
                "a kumi_bytes that is neither KUMI_BYTES_INIT nor what a function left in it",
            ));
        }
        *self = Bytes { data: std::ptr::null_mut(), length: 0, capacity: 0 };
        // SAFETY: by the contract these are the parts of a Vec that `put` decomposed. The line
        // above removed the only other copy.
        Ok(unsafe { Vec::from_raw_parts(data, length, capacity) })
    }

    pub(crate) fn put(&mut self, bytes: Vec<u8>) {
        // A Vec without memory has a dangling pointer, which C code must not receive.
        *self = if bytes.capacity() == 0 {
            Bytes { data: std::ptr::null_mut(), length: 0, capacity: 0 }
        } else {
            let mut bytes = std::mem::ManuallyDrop::new(bytes);
            Bytes { data: bytes.as_mut_ptr(), length: bytes.len(), capacity: bytes.capacity() }
        };
    }
}

/// Frees the buffer; `bytes` can be used again. NULL has no effect.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_bytes_free(bytes: *mut Bytes) {
    // SAFETY: by the interface's contract NULL, or a pointer to a `kumi_bytes`.
    if let Some(bytes) = unsafe { bytes.as_mut() } {
        // SAFETY: by the interface's contract initialised, or last written by the library. An
        // invalid structure stays unchanged.
        drop(unsafe { bytes.take() });
    }
}

/// Dereferences a handle or an argument; `what` names it in the error.
///
/// # Safety
/// `pointer` is NULL, or valid for `'a`.
pub(crate) unsafe fn non_null<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    aligned(pointer, what).and_then(|pointer| {
        // SAFETY: the caller's contract.
        unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
    })
}

/// Dereferences like [`non_null`], for mutation.
///
/// # Safety
/// `pointer` is NULL, or valid for `'a` without another user.
pub(crate) unsafe fn non_null_mut<'a, T>(
    pointer: *mut T,
    what: &str,
) -> Result<&'a mut T, Failure> {
    aligned(pointer, what).and_then(|_| {
        // SAFETY: the caller's contract.
        unsafe { pointer.as_mut() }.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
    })
}

fn aligned<T>(pointer: *const T, what: &str) -> Result<*const T, Failure> {
    if pointer.is_aligned() {
        Ok(pointer)
    } else {
        Err(Failure::invalid(format!("{what} is not aligned")))
    }
}

/// Sets the result of a function that creates a handle to NULL, so that a failure leaves no invalid
/// handle.
///
/// # Safety
/// `out` is NULL, or valid for writes.
pub(crate) unsafe fn cleared_out<'a, T>(out: *mut *mut T) -> Result<&'a mut *mut T, Failure> {
    let Some(_) = (!out.is_null()).then_some(()) else {
        return Err(Failure::invalid("the place for the result is NULL"));
    };
    aligned(out, "the place for the result")?;
    // SAFETY: the caller's contract. Written before a reference to it is created, because it may be
    // uninitialised.
    unsafe { out.write(std::ptr::null_mut()) };
    // SAFETY: the caller's contract.
    Ok(unsafe { &mut *out })
}

/// Converts C's pointer and length to a slice.
///
/// # Safety
/// `data` is NULL, or points to `length` bytes that do not change for `'a`.
pub(crate) unsafe fn slice<'a>(
    data: *const c_void,
    length: usize,
    what: &str,
) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    check(data, length, what)?;
    // SAFETY: the caller's contract, and the length is checked.
    Ok(unsafe { slice::from_raw_parts(data.cast(), length) })
}

/// Converts like [`slice`], for mutation.
///
/// # Safety
/// `data` is NULL, or points to `length` initialised bytes without another user for `'a`.
pub(crate) unsafe fn slice_mut<'a>(
    data: *mut c_void,
    length: usize,
    what: &str,
) -> Result<&'a mut [u8], Failure> {
    if length == 0 {
        return Ok(&mut []);
    }
    check(data, length, what)?;
    // SAFETY: the caller's contract, and the length is checked.
    Ok(unsafe { slice::from_raw_parts_mut(data.cast(), length) })
}

fn check(data: *const c_void, length: usize, what: &str) -> Result<(), Failure> {
    if data.is_null() {
        return Err(Failure::invalid(format!("{what} is NULL, but has {length} bytes")));
    }
    if isize::try_from(length).is_err() {
        return Err(Failure::invalid(format!(
            "{what} has {length} bytes: more than an address space"
        )));
    }
    Ok(())
}

/// Converts a C string in UTF-8.
///
/// # Safety
/// `text` is NULL, or a string with a terminating zero that does not change for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::invalid(format!("{what} is NULL")));
    }
    // SAFETY: the caller's contract.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|e| Failure::invalid(format!("{what} is not UTF-8: {e}")))
}

/// Name, size, and names and offsets of the fields, which a test compares with the header.
#[doc(hidden)]
pub const LAYOUT: Layout = (
    "kumi_bytes",
    size_of::<Bytes>(),
    &[
        ("data", offset_of!(Bytes, data)),
        ("length", offset_of!(Bytes, length)),
        ("capacity", offset_of!(Bytes, capacity)),
    ],
);
