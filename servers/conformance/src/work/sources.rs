//! Source trees: git, tar, rsync.

use std::path::{Path, PathBuf};

use super::{Tree, can, sh};
use crate::image::has;

/// Identifies the author of commits, without a configuration.
const AUTHOR: [&str; 6] =
    ["-c", "user.name=x", "-c", "user.email=x@example.invalid", "-c", "commit.gpgsign=false"];

/// Copies three packages of this repository to a repository of its own, which has all that the jobs
/// read, in a tenth of the files. Returns its directory, below `scratch`.
///
/// # Panics
/// If cp(1) or git(1) fails.
pub fn excerpt(sources: &Path, scratch: &Path) -> PathBuf {
    let excerpt = scratch.join("excerpt");
    let to = excerpt.to_str().expect("UTF-8");
    std::fs::create_dir(&excerpt).expect("a directory");
    let parts = ["ARCHITECTURE.md", "crates/io", "crates/sync", "servers/kv"];
    sh(sources, "cp", &[&["-a", "--parents"], &parts[..], &[to]].concat());
    if has("git") {
        sh(&excerpt, "git", &["init", "-q"]);
        sh(&excerpt, "git", &["add", "."]);
        for message in ["first", "second"] {
            let commit = ["commit", "-q", "--allow-empty", "-m", message];
            sh(&excerpt, "git", &[&AUTHOR[..], &commit].concat());
        }
    }
    excerpt
}

/// Runs `git clone` and `git fsck`, and commits a change.
///
/// # Panics
/// If git(1) fails.
pub fn clones(repository: &Path, place: &Path) {
    if !can("git", &["git"]) {
        return;
    }
    if !repository.join(".git").exists() {
        return kumihimo_tests::skip("git", "the sources are not a git repository");
    }
    let from = repository.to_str().expect("UTF-8");
    sh(place, "git", &["clone", "-q", "--no-local", from, "clone"]);
    let clone = place.join("clone");
    sh(&clone, "git", &["fsck", "--full", "--strict", "--no-progress"]);
    assert_eq!(sh(&clone, "git", &["status", "--porcelain"]), "");
    std::fs::write(clone.join("ARCHITECTURE.md"), "changed\n").expect("a file changes");
    assert_eq!(sh(&clone, "git", &["status", "--porcelain"]), " M ARCHITECTURE.md\n");
    sh(&clone, "git", &[&AUTHOR[..], &["commit", "-qam", "a change"]].concat());
    sh(&clone, "git", &["gc", "-q"]);
    sh(&clone, "git", &["fsck", "--full", "--no-progress"]);
    sh(&clone, "git", &["checkout", "-q", "HEAD~1"]);
    assert_eq!(sh(&clone, "git", &["status", "--porcelain"]), "");
}

/// Packs a source tree with `tar` and unpacks it again. Contents, modes and times must be equal.
///
/// # Panics
/// If tar(1) fails or something differs.
pub fn packs(sources: &Path, place: &Path, scratch: &Path) {
    if !can("tar", &["tar"]) {
        return;
    }
    let (original, back) = (scratch.join("original"), scratch.join("back"));
    for directory in [&original, &back] {
        std::fs::create_dir(directory).expect("a directory");
    }
    sh(sources, "cp", &["-a".as_ref(), "crates".as_ref(), original.join("crates").as_os_str()]);
    sh(&original, "ln", &["-s", "../crates/io", "crates/link"]);
    sh(&original, "ln", &["crates/io/Cargo.toml", "crates/second-name"]);
    let there = scratch.join("there.tar");
    sh(
        &original,
        "tar",
        &["--format=posix".as_ref(), "-cf".as_ref(), there.as_os_str(), ".".as_ref()],
    );
    sh(place, "tar", &["-xpf".as_ref(), there.as_os_str()]);
    sh(place, "tar", &["--format=posix", "-cf", "again.tar", "crates"]);
    sh(&back, "tar", &["-xpf".as_ref(), place.join("again.tar").as_os_str()]);
    let expected = Tree::with_attributes(&original.join("crates"));
    assert!(expected.len() > 100, "{}", expected.len());
    expected.expect(&Tree::with_attributes(&place.join("crates")), "unpacked");
    expected.expect(&Tree::with_attributes(&back.join("crates")), "packed and unpacked again");
}

/// Runs `rsync -a` twice, where the second run must transfer nothing; and again after a change,
/// where it must transfer that file only.
///
/// # Panics
/// If rsync(1) fails or transfers something else.
pub fn synchronises(sources: &Path, place: &Path) {
    if !can("rsync", &["rsync"]) {
        return;
    }
    let from = format!("{}/", sources.join("crates").display());
    let rsync = |more: &[&str]| sh(place, "rsync", &[&["-aHi"], more, &[&from, "copy/"]].concat());
    let first = rsync(&[]);
    assert!(first.lines().count() > 100, "{first}");
    assert_eq!(rsync(&[]), "", "the second time");
    assert_eq!(rsync(&["--checksum"]), "", "by checksum");
    std::fs::write(place.join("copy/io/Cargo.toml"), "changed").expect("a file changes");
    let third = rsync(&[]);
    assert_eq!(third.lines().filter(|line| line.starts_with(">f")).count(), 1, "{third}");
    std::fs::write(place.join("copy/extra"), "").expect("a file");
    let fourth = rsync(&["--delete"]);
    assert!(fourth.contains("*deleting   extra"), "{fourth}");
    Tree::of(&sources.join("crates")).expect(&Tree::of(&place.join("copy")), "the copy");
}
