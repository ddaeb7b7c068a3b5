//! Errors in C: a number and a message.

use std::borrow::Cow;
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use kumihimo::gate::{Error, ErrorKind};
use kumihimo::thread::Cancelled;

thread_local! {
    /// Message of the microprocess, or of the kernel thread that is not a microprocess.
    static TEXT: RefCell<Cow<'static, CStr>> = const { RefCell::new(Cow::Borrowed(c"")) };
}

/// Error kinds and their numbers. If a number appears twice, it converts to the first kind.
const NUMBERS: [(ErrorKind, c_int); 16] = [
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
    (ErrorKind::Unreachable, libc::EHOSTUNREACH),
];

/// Returns the errno of an error kind.
#[must_use]
pub fn number(kind: ErrorKind) -> c_int {
    NUMBERS.iter().find(|(of, _)| *of == kind).map_or(libc::EIO, |(_, number)| *number)
}

/// Returns the kind of a handler's errno, or `Io` for an errno that is not in the table.
pub(crate) fn kind(number: c_int) -> ErrorKind {
    NUMBERS.iter().find(|(_, of)| *of == number).map_or(ErrorKind::Io, |(kind, _)| *kind)
}

/// Failure of an interface function.
pub(crate) struct Failure {
    pub(crate) number: c_int,
    text: Text,
}

/// Message of a failure. A failure that is part of normal operation, such as a time-out, has a
/// constant one, so that it allocates nothing.
enum Text {
    Constant(&'static CStr),
    Composed(String),
}

impl Failure {
    pub(crate) fn new(number: c_int, text: impl Into<String>) -> Failure {
        Failure { number, text: Text::Composed(text.into()) }
    }

    /// Creates a failure whose message is constant.
    pub(crate) const fn constant(number: c_int, text: &'static CStr) -> Failure {
        Failure { number, text: Text::Constant(text) }
    }

    pub(crate) fn with_number(self, number: c_int) -> Failure {
        Failure { number, ..self }
    }

    /// Creates the failure of an invalid argument.
    pub(crate) fn invalid(text: impl Into<String>) -> Failure {
        Failure::new(libc::EINVAL, text)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::new(number(error.kind()), error.to_string())
    }
}

/// Kinds of errors to which the runtime has added a text, so that they have no number any more.
const KINDS: [(io::ErrorKind, c_int); 17] = [
    (io::ErrorKind::AddrInUse, libc::EADDRINUSE),
    (io::ErrorKind::AddrNotAvailable, libc::EADDRNOTAVAIL),
    (io::ErrorKind::AlreadyExists, libc::EEXIST),
    (io::ErrorKind::BrokenPipe, libc::EPIPE),
    (io::ErrorKind::ConnectionAborted, libc::ECONNABORTED),
    (io::ErrorKind::ConnectionRefused, libc::ECONNREFUSED),
    (io::ErrorKind::ConnectionReset, libc::ECONNRESET),
    (io::ErrorKind::HostUnreachable, libc::EHOSTUNREACH),
    (io::ErrorKind::InvalidInput, libc::EINVAL),
    (io::ErrorKind::NetworkDown, libc::ENETDOWN),
    (io::ErrorKind::NetworkUnreachable, libc::ENETUNREACH),
    (io::ErrorKind::NotConnected, libc::ENOTCONN),
    (io::ErrorKind::OutOfMemory, libc::ENOMEM),
    (io::ErrorKind::PermissionDenied, libc::EACCES),
    (io::ErrorKind::TimedOut, libc::ETIMEDOUT),
    (io::ErrorKind::Unsupported, libc::EOPNOTSUPP),
    (io::ErrorKind::WouldBlock, libc::EAGAIN),
];

/// Converts an error of the system. `what` describes the operation.
pub(crate) fn io_failure(error: &io::Error, what: &str) -> Failure {
    let number = error.raw_os_error().or_else(|| {
        KINDS.iter().find(|(kind, _)| *kind == error.kind()).map(|(_, number)| *number)
    });
    let number = number.unwrap_or(libc::EIO);
    Failure::new(number, format!("{what}: {error}"))
}

fn set_text(text: Text) {
    let text = match text {
        Text::Constant(text) => Cow::Borrowed(text),
        Text::Composed(text) => {
            Cow::Owned(CString::new(text.replace('\0', " ")).unwrap_or_default())
        }
    };
    // The old text is dropped after the replacement: its drop must not run while `TEXT` is
    // borrowed.
    let old = TEXT.try_with(|place| place.replace(text));
    drop(old);
}

/// Runs the body of an interface function. Converts a failure to its number and message; no panic
/// unwinds out of it.
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
                format!("the library has a defect and panicked: {message}"),
            )
        }
    };
    set_text(failed.text);
    failed.number
}

/// Returns the message of the last function that failed on this thread; empty if none has. See
/// kumihimo.h.
#[unsafe(no_mangle)]
pub extern "C" fn kumi_error_text() -> *const c_char {
    // At the end of a thread, TEXT may be destroyed before the last caller runs.
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
    fn panics_stop_at_the_boundary_and_set_the_message() {
        assert_eq!(catch_failure(|| Ok(())), 0);
        assert_eq!(catch_failure(|| panic!("of the test, {}", 1)), libc::ENOTRECOVERABLE);
        // SAFETY: our string, with a terminating zero.
        let text = unsafe { std::ffi::CStr::from_ptr(kumi_error_text()) }.to_str().expect("UTF-8");
        assert!(text.contains("of the test, 1"), "{text}");
        assert_eq!(catch_failure(|| Err(Failure::invalid("a\0b"))), libc::EINVAL);
        // SAFETY: as above.
        assert_eq!(unsafe { std::ffi::CStr::from_ptr(kumi_error_text()) }.to_bytes(), b"a b");
    }
}
