//! `kumi bench` and `kumi tour`, which run `kumi-lab`.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory with a copy of `kumi`, and another one for `PATH`. Removed when dropped.
struct Place(PathBuf);

impl Place {
    fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!("kumi-forward-{name}-{}", std::process::id()));
        for folder in ["own", "path"] {
            std::fs::create_dir_all(path.join(folder)).expect("a folder");
        }
        // A copy: with a hard link, the program would find `kumi-lab` in its build directory.
        copy(Path::new(env!("CARGO_BIN_EXE_kumi")), &path.join("own/kumi"));
        Place(path)
    }

    /// Writes a script `kumi-lab` that prints `name` and its arguments and exits with 7.
    fn put_lab(&self, name: &str) {
        let lab = self.0.join(name).join("kumi-lab");
        let text = lab.with_extension("text");
        std::fs::write(&text, format!("#!/bin/sh\nprintf '%s|' {name} \"$@\"\nexit 7\n"))
            .expect("room");
        copy(&text, &lab);
        std::fs::set_permissions(&lab, PermissionsExt::from_mode(0o755)).expect("our own");
    }

    fn kumi(&self, args: &[&str]) -> Output {
        let path = [self.0.join("path").as_path(), Path::new("/bin")].map(Path::to_path_buf);
        let path = std::env::join_paths(path).expect("no colon");
        Command::new(self.0.join("own/kumi")).args(args).env("PATH", path).output().expect("kumi")
    }
}

/// Copies a program by another process. A child that a test beside this one forks meanwhile would
/// have the copy open for writing, and it could not be executed (execve(2), `ETXTBSY`).
fn copy(from: &Path, to: &Path) {
    let copied = Command::new("cp").args([from, to]).status();
    assert!(copied.expect("cp").success());
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn arguments_and_exit_code_pass_through() {
    let place = Place::new("pass");
    place.put_lab("path");
    for args in [
        &["bench", "yield", "--vps", "1,2", "--json", "a b"][..],
        &["bench", "--help"],
        &["bench"],
        &["tour", "-x", "--chapter=3", "--", ""],
    ] {
        let output = place.kumi(args);
        assert_eq!(output.status.code(), Some(7), "{output:?}");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(said, format!("path|{}|", args.join("|")));
    }
}

#[test]
fn binary_beside_kumi_precedes_path() {
    let place = Place::new("beside");
    place.put_lab("path");
    place.put_lab("own");
    let output = place.kumi(&["tour"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "own|tour|");
}

#[test]
fn missing_laboratory_is_reported_with_build_instructions() {
    let place = Place::new("absent");
    let complaint = |output: &Output| {
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = complaint(&place.kumi(&["bench", "all"]));
    assert!(said.starts_with("kumi: bench: ") && said.lines().count() == 1, "{said}");
    assert!(said.contains("cargo build --release -p kumi-lab"), "{said}");
    std::fs::write(place.0.join("own/kumi-lab"), "").expect("room");
    let said = complaint(&place.kumi(&["bench", "all"]));
    assert!(said.contains("own/kumi-lab: ") && said.contains("-p kumi-lab"), "{said}");
}
