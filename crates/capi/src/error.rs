//! Errors as C knows them: a number, and a text beside it.

use std::cell::RefCell;
use std::ffi::{CString, c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use kumihimo::gate::{Error, ErrorKind};
use kumihimo::thread::Cancelled;

thread_local! {
    /// Of the microprocess, or of the kernel thread that is none.
    static TEXT: RefCell<CString> = RefCell::new(CString::default());
}

/// Kinds and their numbers. The first of a number is what the number stands for where it comes from
/// C.
const NUMBERS: [(ErrorKind, c_int); 15] = [
    (ErrorKind::NotFound, libc::ENOENT),
    (ErrorKind::InUse, libc::EADDRINUSE),
    (ErrorKind::NotPermitted, libc::EACCES),
    (ErrorKind::Version, libc::EPROTONOSUPPORT),
    (ErrorKind::Gone, libc::ECONNRESET),
    (ErrorKind::TimedOut, libc::ETIMEDOUT),
    (ErrorKind::Cancelled, libc::ECANCELED),
    (ErrorKind::TooLarge, libc::EMSGSIZE),
    (ErrorKind::Malformed, libc::EBADMSG),
    (ErrorKind::Panicked, libc::EREMOTEIO),
    (ErrorKind::Deadlock, libc::EDEADLK),
    (ErrorKind::Exhausted, libc::ENOMEM),
    (ErrorKind::Invalid, libc::EINVAL),
    (ErrorKind::Io, libc::EIO),
    (ErrorKind::Unsupported, libc::EOPNOTSUPP),
];

/// The errno of a kind.
#[must_use]
pub fn number(kind: ErrorKind) -> c_int {
    NUMBERS.iter().find(|(of, _)| *of == kind).map_or(libc::EIO, |(_, number)| *number)
}

/// The kind that a handler's errno stands for; `Io` where it is none of ours.
pub(crate) fn kind(number: c_int) -> ErrorKind {
    NUMBERS.iter().find(|(_, of)| *of == number).map_or(ErrorKind::Io, |(kind, _)| *kind)
}

/// What a function of the interface failed with.
pub(crate) struct Failure {
    pub(crate) number: c_int,
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(number: c_int, text: impl Into<String>) -> Failure {
        Failure { number, text: text.into() }
    }

    /// A wrong argument.
    pub(crate) fn invalid(text: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(number(error.kind()), error.to_string())
    }
}

fn set_text(text: String) {
    let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
    // The old one is dropped when the place is free again.
    let old = TEXT.try_with(|place| place.replace(text));
    drop(old);
}

/// Runs the body of a function of the interface: what it fails with becomes a number and the text,
/// and nothing unwinds out of it.
pub(crate) fn catch_failure(f: impl FnOnce() -> Result<(), Failure>) -> c_int {
    let failed = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(())) => return 0,
        Ok(Err(failed)) => failed,
        Err(payload) if payload.is::<Cancelled>() => {
            Failure::new(libc::ECANCELED, "the calling microprocess was cancelled")
        }
        Err(payload) => {
            let message = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
            let message =
                message.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
            Failure::new(
                libc::ENOTRECOVERABLE,
                format!("a defect of the library: it panicked: {message}"),
            )
        }
    };
    set_text(failed.text);
    failed.number
}

/// What the last function that failed here says of it; empty before. See kumihimo.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_error_text() -> *const c_char {
    // At the end of a thread it is gone before its last callers may be.
    TEXT.try_with(|place| place.borrow().as_ptr()).unwrap_or(c"".as_ptr())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_numbers_convert_both_ways() {
        for (of, its) in NUMBERS {
            assert_eq!(number(of), its);
            assert_eq!(kind(its), of);
        }
        assert_eq!(kind(libc::ENOTTY), ErrorKind::Io);
    }

    #[test]
    fn panics_stop_at_the_boundary_and_leave_their_text() {
        assert_eq!(catch_failure(|| Ok(())), 0);
        assert_eq!(catch_failure(|| panic!("of the test, {}", 1)), libc::ENOTRECOVERABLE);
        // SAFETY: ours, ended by a zero.
        let text = unsafe { std::ffi::CStr::from_ptr(kumi_error_text()) }.to_str().expect("UTF-8");
        assert!(text.contains("of the test, 1"), "{text}");
        assert_eq!(catch_failure(|| Err(Failure::invalid("a\0b"))), libc::EINVAL);
        // SAFETY: as above.
        assert_eq!(unsafe { std::ffi::CStr::from_ptr(kumi_error_text()) }.to_bytes(), b"a b");
    }
}
