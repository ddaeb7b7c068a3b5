//! Builds C and C++ programs as users build them, against the installed library.

use std::path::Path;
use std::process::Command;

use crate::place::{Place, done, has, installed};

/// Flags of the compilers that the headers have to pass.
pub const STRICT_C: [&str; 5] = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];

pub const STRICT_CPP: [&str; 5] = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Builds a program with the flags of pkg-config. `more` are further libraries, or `--static`.
/// Returns `None`, after a report, if a tool is missing.
pub fn build(
    compiler: &str,
    flags: &[&str],
    source: &Path,
    test: &str,
    place: &Place,
    more: &[&str],
) -> Option<Command> {
    for tool in [compiler, "pkg-config"] {
        if !has(test, tool) {
            return None;
        }
    }
    let library = installed().join("lib");
    let is_static = more.contains(&"--static");
    let libraries = more.iter().filter(|name| **name != "--static");
    let mut asks = Command::new("pkg-config");
    asks.args(["--cflags", "--libs"])
        .args(is_static.then_some("--static"))
        .arg("kumihimo")
        .env("PKG_CONFIG_PATH", library.join("pkgconfig"));
    let mut linked = String::from_utf8(done(&mut asks).stdout).expect("flags");
    if is_static {
        linked = linked.replace("-lkumihimo_c", "-l:libkumihimo_c.a");
    }
    let program = place.0.join(source.file_stem().expect("a file"));
    let mut build = Command::new(compiler);
    build.args(flags).args(["-g", "-o"]).arg(&program).arg(source);
    done(build.args(linked.split_whitespace()).args(libraries));
    let mut command = Command::new(program);
    command.env("KUMI_DIR", place.text()).env("LD_LIBRARY_PATH", library);
    Some(command)
}
