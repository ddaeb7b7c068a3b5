//! Programs of other projects that a step needs, built from source into the target folder.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::workspace;

/// A program on crates.io, in one version.
pub struct Tool {
    /// Its crate and its binary.
    pub name: &'static str,
    pub version: &'static str,
    /// Further arguments of `cargo install`.
    pub options: &'static [&'static str],
}

impl Tool {
    /// The path of the program, which is built if it is not there in this version (minutes). `None`
    /// if it cannot be built; cargo has then printed the reason. Blocks the kernel thread.
    pub fn path(&self) -> Option<PathBuf> {
        let tools = workspace::target().join("tools");
        let program = tools.join("bin").join(self.name);
        if self.is_at(&program) {
            return Some(program);
        }
        println!("== building {} {}", self.name, self.version);
        let build = tools.join("build");
        let mut install = workspace::cargo();
        install.args(["install", "--locked", "--quiet", "--version", self.version]);
        install.args(self.options).arg("--root").arg(&tools).arg("--target-dir").arg(&build);
        let status = install.arg(self.name).stdin(Stdio::null()).status();
        let _ = std::fs::remove_dir_all(build);
        status.is_ok_and(|status| status.success()).then_some(program)
    }

    fn is_at(&self, program: &Path) -> bool {
        let output = Command::new(program).arg("--version").stdin(Stdio::null()).output();
        output.is_ok_and(|output| states(&String::from_utf8_lossy(&output.stdout), self.version))
    }
}

/// Whether `text`, such as `mdbook v0.5.4`, states this version.
fn states(text: &str, version: &str) -> bool {
    text.split_whitespace().any(|word| word.trim_start_matches('v') == version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_compared_as_a_whole_word() {
        assert!(states("mdbook v0.5.4\n", "0.5.4") && states("cargo-deny 0.20.2\n", "0.20.2"));
        assert!(!states("mdbook v0.5.40\n", "0.5.4") && !states("", "0.5.4"));
    }
}
