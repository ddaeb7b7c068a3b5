//! Prerequisites and helpers of the mount tests.

use std::path::Path;

use kumihimo_conformance::{Image, Mounted, Options, Organisation};
use kumihimo_tests::skip;
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Path of the command.
pub fn kumi() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_kumi"))
}

/// Gives the calling thread, and the threads that it starts, a descriptor table of their own.
///
/// A child process has all descriptors of the table until it has executed its program, even for a
/// moment after std's `spawn` has returned. On a busy machine that takes as long as the child waits
/// for a core. If the tests shared a table, the children of one test would keep files open that
/// another test has closed, and the mount of that test would be busy.
pub fn separate_descriptors() {
    // SAFETY: all descriptors that this thread uses are copied. It passes none to threads that it
    // has not started, and receives none from them.
    unsafe { unshare_unsafe(UnshareFlags::FILES) }.expect("a table for the thread");
}

/// Returns whether root can mount here. Reports `test` as skipped otherwise. Called first by each
/// test.
pub fn can_mount(test: &str) -> bool {
    separate_descriptors();
    if !rustix::process::geteuid().is_root() {
        skip(test, "not root");
    } else if !Path::new("/dev/fuse").exists() {
        skip(test, "no /dev/fuse here");
    } else {
        return true;
    }
    false
}

/// As [`can_mount`], and whether images can be made and checked.
pub fn has_e2fsprogs(test: &str) -> bool {
    if !can_mount(test) {
        return false;
    }
    let has = std::process::Command::new("mke2fs").arg("-V").output().is_ok();
    if !has {
        skip(test, "no mke2fs(8) here");
    }
    has
}

/// Starts a server on an image.
pub fn serve(organisation: Organisation, image: &Image) -> Mounted {
    Mounted::start(kumi(), &Options::new(organisation), image.path())
}
