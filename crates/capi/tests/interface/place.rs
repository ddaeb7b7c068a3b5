//! Directories, programs and processes for one test.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

/// Directory of a test, removed on drop: the run-time directory of its gates, and room for build
/// output.
pub struct Place(pub PathBuf);

impl Place {
    pub fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!(
            "kumihimo-capi-{}-{}",
            name.replace(':', "-"),
            std::process::id()
        ));
        std::fs::create_dir(&path).expect("a directory");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).expect("its mode");
        Place(path)
    }

    pub fn text(&self) -> &str {
        self.0.to_str().expect("a path")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the directory with the libraries that cargo has built.
pub fn libraries() -> PathBuf {
    let program = std::env::current_exe().expect("this program");
    let folder = program.parent().expect("its folder").to_path_buf();
    assert!(folder.join("libkumihimo_c.a").exists(), "{} has no library", folder.display());
    folder
}

/// Returns the prefix below which the header, the libraries and the manual pages of this build are
/// installed. The first test that needs it installs them.
pub fn installed() -> &'static Path {
    static PREFIX: OnceLock<PathBuf> = OnceLock::new();
    PREFIX.get_or_init(|| {
        let prefix = libraries().join("kumihimo-c");
        let script = kumihimo_tests::root().join("scripts/install");
        let built = libraries();
        done(Command::new(script).arg(&prefix).arg("c").env("LIBRARIES", built).env("DESTDIR", ""));
        prefix
    })
}

/// Returns the shared library of this build.
pub fn shared_library() -> PathBuf {
    installed().join("lib/libkumihimo_c.so.0")
}

pub fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// Returns whether `program` exists. Reports the test as skipped if not.
pub fn has(test: &str, program: &str) -> bool {
    let found =
        Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !found {
        kumihimo_tests::skip(test, &format!("no {program} here"));
    }
    found
}

/// Runs a command to its end, and checks that it succeeds.
pub fn done(command: &mut Command) -> Output {
    let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{said}\n{complained}", output.status);
    output
}

/// Process that serves until its standard input ends.
pub struct Server {
    child: Option<Child>,
}

impl Server {
    /// Starts the process, and returns once it prints that it serves.
    pub fn start(command: &mut Command) -> Server {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Server::of(piped.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}")))
    }

    /// Takes over a process that was started with pipes.
    pub fn of(mut child: Child) -> Server {
        let mut lines = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        while !line.contains("serving") {
            line.clear();
            assert_ne!(
                lines.read_line(&mut line).expect("it writes"),
                0,
                "the server ended before it served"
            );
        }
        assert!(lines.buffer().is_empty());
        child.stdout = Some(lines.into_inner());
        Server { child: Some(child) }
    }

    /// Ends the process, checks that it succeeds, and returns its output.
    pub fn end(mut self) -> String {
        let mut child = self.child.take().expect("it runs");
        drop(child.stdin.take());
        let mut said = String::new();
        child.stdout.take().expect("a pipe").read_to_string(&mut said).expect("UTF-8");
        let status = child.wait().expect("it ends");
        assert!(status.success(), "{status}: {said}");
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
