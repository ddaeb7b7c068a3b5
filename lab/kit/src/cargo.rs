//! Cargo, called by a program or test that cargo itself runs.

use std::process::Command;

/// The cargo that runs this program, without what it and `cargo xtask test` set for the program.
/// With these variables it would build dependencies anew, all others after them, and once more for
/// the next call without them.
#[must_use]
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.env_remove("RUSTC_BOOTSTRAP");
    for (name, _) in std::env::vars_os() {
        let is_of_package =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(is_of_package) {
            cargo.env_remove(name);
        }
    }
    cargo
}
