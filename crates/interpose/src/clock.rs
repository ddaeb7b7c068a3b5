//! clock_gettime(2), as `arch` replaces it.

use std::ffi::c_int;

#[unsafe(no_mangle)]
unsafe extern "C" fn kumi_interpose_clock_gettime(
    clock: libc::clockid_t,
    to: *mut libc::timespec,
) -> c_int {
    // SAFETY: the caller's promise. The definition of `arch`: see `real.rs`.
    unsafe { libc::clock_gettime(clock, to) }
}
