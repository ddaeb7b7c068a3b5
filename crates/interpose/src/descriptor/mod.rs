//! Descriptors as the program sees them.
//!
//! - [`table`]: what is known of each number.
//! - [`kept`]: the runtime's own descriptors, which the program does not close.
//! - [`open`]: calls that make, copy and close descriptors.
//! - [`socket`], [`pipe`], [`connect`]: transfers and connections; [`transfer`]: attempts and
//!   waits.
//! - [`poll`], [`select`], [`epoll`]: waits for one of several.
//!
//! O_NONBLOCK belongs to the open file, which other descriptors and processes share, so it is
//! neither changed nor remembered here. An attempt on a socket is made with `MSG_DONTWAIT`; where
//! it must wait, fcntl(2) says whether the program wants that.

mod connect;
mod epoll;
mod kept;
pub(crate) mod open;
mod pipe;
mod poll;
mod select;
mod socket;
mod table;
mod transfer;

use crate::real::libc;

unsafe extern "C" {
    fn __chk_fail() -> !;
}

/// The bounds check of `_FORTIFY_SOURCE`. Ends the process if the program's buffer is too small,
/// with the C library's report.
fn check_room(bytes: usize, room: usize) {
    if bytes > room {
        // SAFETY: ends the process.
        unsafe { __chk_fail() }
    }
}

/// Sets errno if `result` is a negated error number, as the kernel returns it.
fn returned(result: isize) -> isize {
    if (-4095..0).contains(&result) {
        // SAFETY: errno belongs to the calling thread.
        unsafe { *libc::__errno_location() = -result as i32 };
        return -1;
    }
    result
}
