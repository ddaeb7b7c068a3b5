//! Prerequisites and helpers of the mount tests.

use std::path::Path;

use kumihimo_conformance::{Image, Mounted, Options, Organisation};
use kumihimo_tests::skip;

/// Path of the command.
pub fn kumi() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_kumi"))
}

/// Returns whether root can mount here. Reports `test` as skipped otherwise.
pub fn can_mount(test: &str) -> bool {
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
