//! System calls that take a path.

use std::io;

use kumihimo_runtime::cancel;
use kumihimo_runtime::thread::blocking;

use crate::descriptor::brief;

/// Runs a call with a path, which may wait for the disk. A cancellation point.
pub(super) fn call<T>(f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    cancel::point();
    brief(f)
}

/// Runs a call that walks a tree or waits for long. A cancellation point.
pub(super) fn long_call<T>(f: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    cancel::point();
    blocking(f)
}
