//! The source tree and its target directory.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Root of the source tree.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("the crate lies two folders below the root").to_path_buf()
}

/// Directory in which cargo builds: CARGO_TARGET_DIR, or `target` in the root.
pub fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// A command for the cargo that runs this program, in the root.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    // `cargo run` sets variables of its own package, which must not reach other packages.
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_")) {
            cargo.env_remove(name);
        }
    }
    cargo.env_remove("CARGO_MANIFEST_DIR").env_remove("CARGO_MANIFEST_PATH");
    cargo
}

/// A command for another program, in the root.
pub fn program(name: &str) -> Command {
    let mut program = Command::new(name);
    program.current_dir(root());
    program
}
