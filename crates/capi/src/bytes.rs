//! What comes in and goes out: pointers of C, checked.

use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;
use std::slice;

use crate::error::Failure;

/// Name, size, fields and their places.
#[doc(hidden)]
pub type Layout = (&'static str, usize, &'static [(&'static str, usize)]);

/// `kumi_bytes`: a buffer of the library's that its user keeps, and that calls fill again and
/// again.
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
    /// `self` is as it was initialised, or as this library left it.
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
        // SAFETY: by the contract these are the parts of a Vec, which `put` took apart; nobody else
        // has them since the line before.
        Ok(unsafe { Vec::from_raw_parts(data, length, capacity) })
    }

    pub(crate) fn put(&mut self, bytes: Vec<u8>) {
        // What has no memory has a dangling pointer, which C is not to see.
        *self = if bytes.capacity() == 0 {
            Bytes { data: std::ptr::null_mut(), length: 0, capacity: 0 }
        } else {
            let mut bytes = std::mem::ManuallyDrop::new(bytes);
            Bytes { data: bytes.as_mut_ptr(), length: bytes.len(), capacity: bytes.capacity() }
        };
    }
}

/// Frees the buffer; `bytes` can be used again. NULL is nothing to do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn kumi_bytes_free(bytes: *mut Bytes) {
    // SAFETY: by the interface's contract it is NULL or points to one.
    if let Some(bytes) = unsafe { bytes.as_mut() } {
        // SAFETY: by the interface's contract it is as the library left it. One that is not is left
        // alone.
        drop(unsafe { bytes.take() });
    }
}

/// What a handle or an argument points to.
///
/// # Safety
/// NULL, or valid for `'a`.
pub(crate) unsafe fn non_null<'a, T>(pointer: *const T, what: &str) -> Result<&'a T, Failure> {
    aligned(pointer, what).and_then(|pointer| {
        // SAFETY: the caller's promise.
        unsafe { pointer.as_ref() }.ok_or_else(|| Failure::invalid(format!("{what} is NULL")))
    })
}

/// As [`non_null`], to be changed.
///
/// # Safety
/// NULL, or valid for `'a` and nobody else's meanwhile.
pub(crate) unsafe fn non_null_mut<'a, T>(
    pointer: *mut T,
    what: &str,
) -> Result<&'a mut T, Failure> {
    aligned(pointer, what).and_then(|_| {
        // SAFETY: the caller's promise.
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

/// Sets the result of a function that makes a handle to NULL, so that nobody uses what is not
/// there.
///
/// # Safety
/// NULL, or valid to be written.
pub(crate) unsafe fn cleared_out<'a, T>(out: *mut *mut T) -> Result<&'a mut *mut T, Failure> {
    let Some(_) = (!out.is_null()).then_some(()) else {
        return Err(Failure::invalid("the place for the result is NULL"));
    };
    aligned(out, "the place for the result")?;
    // SAFETY: the caller's promise; written before a reference to it is made, as it may be
    // uninitialised.
    unsafe { out.write(std::ptr::null_mut()) };
    // SAFETY: the caller's promise.
    Ok(unsafe { &mut *out })
}

/// Bytes that C has.
///
/// # Safety
/// NULL, or `length` bytes that stay as they are for `'a`.
pub(crate) unsafe fn slice<'a>(
    data: *const c_void,
    length: usize,
    what: &str,
) -> Result<&'a [u8], Failure> {
    if length == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(Failure::invalid(format!("{what} is NULL, but has {length} bytes")));
    }
    if isize::try_from(length).is_err() {
        return Err(Failure::invalid(format!(
            "{what} has {length} bytes: more than an address space"
        )));
    }
    // SAFETY: the caller's promise, and the length is possible.
    Ok(unsafe { slice::from_raw_parts(data.cast(), length) })
}

/// A text that C has, in UTF-8.
///
/// # Safety
/// NULL, or ended by a zero and unchanged for `'a`.
pub(crate) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::invalid(format!("{what} is NULL")));
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|e| Failure::invalid(format!("{what} is not UTF-8: {e}")))
}

/// Name, size and places of the fields, which a test holds against the header.
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
