//! The two builds: commits checked out into one worktree, built, and kept by commit.
//!
//! Both are built in the same directory, so that equal sources give equal programs and cargo
//! recompiles only the crates that differ.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::fs::{FlockOperation, flock};

use super::child::{line_of, make};

/// Characters of a commit's hash in names.
const SHORT: usize = 12;
/// Packages of the program that all rows run: the laboratory's, or `kumi` itself in a commit before
/// the laboratory existed.
const PROGRAMS: [&str; 2] = ["kumi-lab", "kumi"];
/// File that exists in every commit with the laboratory.
const LABORATORY: &str = "lab/kumi-lab/Cargo.toml";

/// Which of the two builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The commit that is compared with.
    Base,
    /// The current tree.
    New,
}

impl Side {
    /// Both.
    pub const ALL: [Side; 2] = [Side::Base, Side::New];

    /// As reports and samples name it.
    pub fn name(self) -> &'static str {
        match self {
            Side::Base => "base",
            Side::New => "new",
        }
    }
}

/// An existing build.
#[derive(Clone, Debug)]
pub struct Build {
    /// Short hash and subject of its commit, with a note if the tree has uncommitted changes.
    pub title: String,
    /// The program: `kumi-lab`, or `kumi` of a commit without the laboratory.
    pub kumi: PathBuf,
}

/// Directory of builds and results: `target/bench-check` of a git repository.
#[derive(Debug)]
pub struct Workshop {
    root: PathBuf,
    folder: PathBuf,
    /// Lock against concurrent runs, held until this value is dropped.
    _lock: File,
}

/// Runs git in `root` and returns its standard output. An error contains git's own message.
fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new("git");
    command.arg("-C").arg(root).args(args).stdin(Stdio::null());
    let line = line_of(&command);
    let output = command.output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => {
            "git is not installed; bench-check needs it to check BASE out".to_owned()
        }
        _ => format!("`{line}`: {e}"),
    })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let hint = match said.contains("not a git repository") {
            true => "; bench-check compares two commits: run it inside a clone of the repository",
            false => "",
        };
        return Err(format!("`{line}` failed: {}{hint}", said.trim()));
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

impl Workshop {
    /// Opens the repository that contains `directory`. Fails while another `bench-check` runs
    /// there.
    pub fn open(directory: &Path) -> Result<Workshop, String> {
        let root = git(directory, &["rev-parse", "--show-toplevel"])?;
        let root = PathBuf::from(root);
        let folder = root.join("target/bench-check");
        make(&folder)?;
        let path = folder.join("lock");
        let lock = File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive)
            .map_err(|e| format!("{} is locked, another bench-check runs: {e}", path.display()))?;
        Ok(Workshop { root, folder, _lock: lock })
    }

    /// Directory for results.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Resolves a commit to its full hash.
    pub fn resolve(&self, commit: &str) -> Result<String, String> {
        let revision = format!("{commit}^{{commit}}");
        git(&self.root, &["rev-parse", "--verify", "--quiet", "--end-of-options", &revision])
            .map_err(|_| {
                format!(
                    "BASE: {commit:?} is not a commit of {}; name a commit, tag or branch",
                    self.root.display()
                )
            })
    }

    /// Changed and new files, one a line as `git status --short` prints them; empty if none.
    pub fn changes(&self) -> Result<String, String> {
        git(&self.root, &["status", "--short"])
    }

    fn title(&self, hash: &str) -> Result<String, String> {
        let subject = git(&self.root, &["log", "-1", "--format=%s", hash])?;
        Ok(format!("{} {subject}", &hash[..SHORT]))
    }

    /// The build of a commit. Builds it unless an earlier run with the same compiler has kept it.
    pub fn commit(&self, commit: &str) -> Result<Build, String> {
        let hash = self.resolve(commit)?;
        let title = self.title(&hash)?;
        let kept = self.folder.join(&hash[..SHORT]);
        let stamp = kept.join("built-with");
        let with = toolchain();
        let is_current = || fs::read_to_string(&stamp).is_ok_and(|text| text == with);
        let there = PROGRAMS.map(|program| kept.join(program)).into_iter().find(|p| p.is_file());
        if let Some(kumi) = there.filter(|_| is_current()) {
            return Ok(Build { title, kumi });
        }
        let source = self.check_out(&hash)?;
        make(&kept)?;
        let kumi = self.build(&source, &self.folder.join("cargo"), &title, &kept)?;
        fs::write(&stamp, with).map_err(|e| format!("{}: {e}", stamp.display()))?;
        Ok(Build { title, kumi })
    }

    /// The build of the working tree, which is never kept.
    pub fn working_tree(&self) -> Result<Build, String> {
        let title = format!("{} with uncommitted changes", self.title(&self.resolve("HEAD")?)?);
        let kept = self.folder.join("working-tree");
        make(&kept)?;
        // Not the target directory of the commits: cargo takes equal packages in two directories
        // for the same, and decides only by timestamps whether to rebuild one.
        let kumi = self.build(&self.root, &self.root.join("target"), &title, &kept)?;
        Ok(Build { title, kumi })
    }

    /// Checks exactly this commit out into the worktree.
    fn check_out(&self, hash: &str) -> Result<PathBuf, String> {
        let source = self.folder.join("source");
        git(&self.root, &["worktree", "prune"])?;
        if source.join(".git").exists() {
            git(&source, &["checkout", "--quiet", "--force", "--detach", hash])?;
            git(&source, &["clean", "--quiet", "-fdx"])?;
        } else {
            let path = source.to_string_lossy();
            git(&self.root, &["worktree", "add", "--quiet", "--force", "--detach", &path, hash])?;
        }
        Ok(source)
    }

    /// Builds the program of `source` and copies it into the directory `to`. Returns its new path.
    fn build(
        &self,
        source: &Path,
        target: &Path,
        title: &str,
        to: &Path,
    ) -> Result<PathBuf, String> {
        let program = program_of(source);
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--release", "--locked", "--package", program, "--bin", program]);
        cargo.current_dir(source).env("CARGO_TARGET_DIR", target).stdin(Stdio::null());
        let line = line_of(&cargo);
        eprintln!("bench-check: builds {title}");
        let status = cargo.status().map_err(|e| format!("`{line}`: {e}"))?;
        if !status.success() {
            let place = source.display();
            return Err(format!(
                "the build of {title} failed; the errors stand above (`{line}` in {place})"
            ));
        }
        let (built, to) = (target.join("release").join(program), to.join(program));
        fs::copy(&built, &to)
            .map_err(|e| format!("{} to {}: {e}", built.display(), to.display()))?;
        Ok(to)
    }
}

/// The program that runs the benchmarks in a source tree.
fn program_of(source: &Path) -> &'static str {
    let [laboratory, product] = PROGRAMS;
    if source.join(LABORATORY).is_file() { laboratory } else { product }
}

/// Inputs of a build other than the commit: compiler and flags.
fn toolchain() -> String {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let version = Command::new(rustc).arg("--version").output();
    let version = version
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let flags = ["RUSTFLAGS", "CARGO_ENCODED_RUSTFLAGS"]
        .map(|name| std::env::var(name).unwrap_or_default());
    format!("{}\n{}\n", version.trim(), flags.join("\n"))
}
