//! Cargo's companions, built from source once and kept in the target folder.

use std::path::PathBuf;
use std::process::Stdio;

use crate::workspace;

/// A program of crates.io at one version.
#[derive(Clone, Copy)]
pub struct BuiltTool {
    pub name: &'static str,
    pub version: &'static str,
}

/// Licences and advisories of dependencies.
pub const CARGO_DENY: BuiltTool = BuiltTool { name: "cargo-deny", version: "0.20.2" };
/// Debian packages.
pub const CARGO_DEB: BuiltTool = BuiltTool { name: "cargo-deb", version: "3.8.0" };
/// Breaking changes of the public interface.
pub const CARGO_SEMVER_CHECKS: BuiltTool =
    BuiltTool { name: "cargo-semver-checks", version: "0.51.0" };

impl BuiltTool {
    /// Returns the path of the program, after building it if it is absent (minutes). None: it could
    /// not be built, and cargo has printed why.
    pub fn path(self) -> Option<PathBuf> {
        let tools = workspace::target().join("tools").join(self.version_name());
        let program = tools.join("bin").join(self.name);
        if !program.exists() {
            println!("== building {} {}", self.name, self.version);
            let mut install = workspace::cargo();
            install.args(["install", "--locked", "--quiet", "--version", self.version]);
            install.arg("--root").arg(&tools).arg("--target-dir").arg(tools.join("build"));
            let built = install.arg(self.name).stdin(Stdio::null()).status();
            if !built.is_ok_and(|status| status.success()) {
                return None;
            }
            let _ = std::fs::remove_dir_all(tools.join("build"));
        }
        Some(program)
    }

    fn version_name(self) -> String {
        format!("{}-{}", self.name, self.version)
    }
}
