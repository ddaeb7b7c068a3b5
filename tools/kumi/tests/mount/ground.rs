//! What these tests stand on.

use std::path::Path;

use kumihimo_conformance::{Image, Mounted, Options, Organisation};
use kumihimo_tests::skip;

/// The command.
pub fn kumi() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_kumi"))
}

/// Whether root may mount here; says so if not.
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

/// Whether an image can be made and checked as well.
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

/// A server on an image.
pub fn serve(organisation: Organisation, image: &Image) -> Mounted {
    Mounted::start(kumi(), &Options::new(organisation), image.path())
}
