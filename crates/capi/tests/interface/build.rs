//! Builds C and C++ programs as users build them, against the installed library.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use crate::place::{Place, done, has, installed, libraries};

/// Flags of the compilers that the headers have to pass.
pub const STRICT_C: [&str; 5] = ["-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];

pub const STRICT_CPP: [&str; 5] = ["-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror"];

/// Builds a program with the flags of pkg-config, unless another test has built the same one.
/// `more` are further libraries, or `--static`. Returns `None`, after a report, if a tool is
/// missing.
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
    let mut build = Command::new(compiler);
    build.args(flags).arg("-g").arg(source).args(linked.split_whitespace()).args(libraries);
    let mut command = Command::new(built_once(build, source));
    command.env("KUMI_DIR", place.text()).env("LD_LIBRARY_PATH", library);
    Some(command)
}

/// Runs a compiler without `-o`, unless this process has run the same command before, and returns
/// the program.
fn built_once(mut build: Command, source: &Path) -> PathBuf {
    static BUILT: Mutex<Option<HashMap<u64, Arc<OnceLock<PathBuf>>>>> = Mutex::new(None);
    let mut hasher = DefaultHasher::new();
    build.get_program().hash(&mut hasher);
    build.get_args().for_each(|argument| argument.hash(&mut hasher));
    let number = hasher.finish();
    let program =
        BUILT.lock().expect("no panic").get_or_insert_default().entry(number).or_default().clone();
    let path = program.get_or_init(|| {
        let stem = source.file_stem().expect("a file").display();
        let folder = libraries().join("kumihimo-c-programs");
        std::fs::create_dir_all(&folder).expect("a directory");
        let path = folder.join(format!("{stem}-{number:016x}"));
        // Another process may run the program of this name, so its file is replaced by another one.
        // The compiler writes that: a descriptor of this process could be inherited by a child of
        // another test, and execve(2) fails with ETXTBSY while one is open for writing.
        let ready = folder.join(format!("{}-{number:016x}", std::process::id()));
        done(build.arg("-o").arg(&ready));
        std::fs::rename(&ready, &path).expect("the same directory");
        path
    });
    path.clone()
}
