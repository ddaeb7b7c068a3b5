//! What the tests need: the preloaded libraries, programs built from source, and runs of both
//! kinds.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use kumihimo_tests::place::Place;
use kumihimo_tests::process::{Ended, cargo, finish, has_vps};

pub const KUMI: &str = env!("CARGO_BIN_EXE_kumi");
pub const LIBRARIES: [&str; 2] = ["libkumihimo_preload.so", "libkumihimo_run.so"];

/// The folder of `kumi`, with both libraries of this build.
///
/// Cargo builds no shared library of another package for a test, so this builds them as it built
/// `kumi`: into the same target directory, with the same profile. Once in each process, and a
/// matter of milliseconds if they are there.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(KUMI).parent().expect("a folder").to_path_buf();
        let target = folder.parent().expect("a target directory");
        let profile = match folder.file_name().and_then(OsStr::to_str).expect("text") {
            "debug" => "dev",
            other => other,
        };
        let mut cargo = cargo();
        cargo
            .current_dir(kumihimo_tests::root())
            .args(["build", "--package", "kumihimo-run", "--package", "kumihimo-preload"])
            .args(["--profile", profile, "--target-dir"])
            .arg(target);
        let output = cargo.output().expect("cargo");
        assert!(
            output.status.success(),
            "the libraries do not build: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        for name in LIBRARIES {
            assert!(folder.join(name).is_file(), "{} has no {name}", folder.display());
        }
        folder
    })
}

/// Whether programs can run on microprocesses here. Reports the test as skipped if not.
pub fn is_able(test: &str) -> bool {
    if !has_vps(test) {
        return false;
    }
    folder();
    true
}

/// A folder of the test with a program that it has built.
pub struct Built {
    pub place: Place,
    pub program: PathBuf,
}

impl Built {
    /// Builds the source in `programs`. Returns `None`, after a report, where there is no compiler,
    /// or where no program can run on microprocesses.
    pub fn new(test: &str, source: &str) -> Option<Built> {
        Built::with(test, source, &[])
    }

    /// As `new`, with options for the compiler.
    pub fn with(test: &str, source: &str, options: &[&str]) -> Option<Built> {
        if !is_able(test) {
            return None;
        }
        let place = Place::new(test);
        let program = place.0.join(source.split('.').next().expect("a name"));
        build(test, source, options, &program)?;
        Some(Built { place, program })
    }

    /// The program on kernel threads.
    pub fn plainly(&self) -> Command {
        let mut command = Command::new(&self.program);
        self.prepare(&mut command);
        command
    }

    /// The program by `kumi run` with these options.
    pub fn by_kumi(&self, options: &[&str]) -> Command {
        let mut command = Command::new(KUMI);
        self.prepare(&mut command);
        command.arg("run").args(options).arg(&self.program);
        command
    }

    /// A command in the folder of the test, with a run-time directory of its own.
    pub fn prepare(&self, command: &mut Command) {
        command.env("KUMI_DIR", self.place.path()).current_dir(&self.place.0);
    }
}

/// Builds the source in `programs` as `to`. Returns `None`, after a report, without a compiler.
pub fn build(test: &str, source: &str, options: &[&str], to: &Path) -> Option<()> {
    let is_cpp = Path::new(source).extension().is_some_and(|extension| extension == "cpp");
    let (compiler, standard) = if is_cpp { ("c++", "-std=c++17") } else { ("cc", "-std=gnu11") };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/run/programs");
    let output = Command::new(compiler)
        .current_dir(folder)
        .args([standard, "-D_GNU_SOURCE", "-O2", "-g", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(options)
        .arg("-o")
        .args([to.as_os_str(), OsStr::new(source), OsStr::new("-lm")])
        .output();
    match output {
        Ok(output) if output.status.success() => Some(()),
        Ok(output) => panic!("{source}: {}", String::from_utf8_lossy(&output.stderr)),
        Err(_) => {
            kumihimo_tests::skip(test, &format!("no {compiler} here"));
            None
        }
    }
}

/// Runs the command to its end. Panics if it hangs.
pub fn run(test: &str, command: &mut Command) -> Ended {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    finish(test, command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
}

/// Writes a file that is to be executed.
///
/// By another process: a descriptor of this one, open for writing, could be inherited by a child
/// that another test starts at this moment, and the kernel executes no file that is open for
/// writing (ETXTBSY, execve(2)).
pub fn write_program(path: &Path, contents: &[u8]) {
    let source = path.with_extension("contents");
    std::fs::write(&source, contents).expect("a file");
    copy_program(&source, path);
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("its mode");
}

/// Copies a file that is to be executed: see [`write_program`].
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").args([from, to]).status().expect("cp");
    assert!(status.success(), "{}: {status}", to.display());
}

/// The numbers of the line that `--strict` prints at the end of a program: threads that were
/// microprocesses, and all threads.
pub fn counts(line: &str) -> Option<(u64, u64)> {
    let counts = line.strip_prefix("kumi run: ")?.strip_suffix(" threads were microprocesses")?;
    let (micro, all) = counts.split_once(" of ")?;
    Some((micro.parse().ok()?, all.parse().ok()?))
}

/// The numbers of the first such line.
pub fn threads(ended: &Ended) -> Option<(u64, u64)> {
    ended.stderr.lines().find_map(counts)
}
