//! An ext2 image, and what other people's programs say of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::place::Scratch;

/// Runs a program.
///
/// # Panics
/// If it is not there.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    let ran = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(std::process::Stdio::null())
        .output();
    ran.unwrap_or_else(|e| panic!("{program}: {e}"))
}

/// What a program wrote, and how it ended.
pub(crate) fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Whether this machine has the program.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/sbin", "/usr/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).any(|directory| directory.join(program).is_file())
}

/// An image in a directory of its own, removed in the end.
#[derive(Debug)]
pub struct Image {
    scratch: Scratch,
    path: PathBuf,
}

impl Image {
    /// Whether this machine has the programs that make, check and read images.
    #[must_use]
    pub fn can_be_made() -> bool {
        ["mke2fs", "e2fsck", "debugfs"].iter().all(|program| has(program))
    }

    /// As `mke2fs -t ext2` makes it: so many megabytes, in blocks of so many bytes.
    ///
    /// # Panics
    /// If mke2fs(8) fails.
    #[must_use]
    pub fn new(megabytes: u64, block: u32) -> Image {
        Image::with(megabytes, block, &[])
    }

    /// As [`new`](Image::new), with more arguments for mke2fs(8).
    ///
    /// # Panics
    /// If mke2fs(8) fails.
    #[must_use]
    pub fn with(megabytes: u64, block: u32, more: &[&str]) -> Image {
        let scratch = Scratch::new("image");
        let path = scratch.path().join("image");
        let file = std::fs::File::create(&path).expect("an image");
        file.set_len(megabytes << 20).expect("room");
        let (block, text) = (block.to_string(), path.to_str().expect("UTF-8"));
        let mut arguments = vec!["-q", "-F", "-t", "ext2", "-b", &block];
        arguments.extend(more);
        arguments.push(text);
        let made = run("mke2fs", &arguments);
        assert!(made.status.success(), "mke2fs: {}", told(&made));
        Image { scratch, path }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A new directory beside it.
    #[must_use]
    pub fn directory(&self, name: &str) -> PathBuf {
        self.scratch.directory(name)
    }

    fn text(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }

    /// `e2fsck -fn` finds nothing.
    ///
    /// # Panics
    /// If it does.
    pub fn expect_clean(&self) {
        let checked = run("e2fsck", &["-fn", self.text()]);
        assert!(checked.status.success(), "e2fsck -fn: {}", told(&checked));
    }

    /// `e2fsck -p` repairs what a crash left: by itself, and all of it.
    ///
    /// # Panics
    /// If it wants help, or something is wrong still.
    pub fn repair(&self) {
        let repaired = run("e2fsck", &["-p", "-f", self.text()]);
        // 1: repaired.
        assert!(matches!(repaired.status.code(), Some(0 | 1)), "e2fsck -p: {}", told(&repaired));
        self.expect_clean();
    }

    /// The tree in it as debugfs(8) reads it, below a new directory.
    ///
    /// # Panics
    /// If debugfs(8) complains.
    #[must_use]
    pub fn dump(&self) -> PathBuf {
        let into = self.directory("dumped");
        let command = format!("rdump / {}", into.display());
        let dumped = run("debugfs", &["-R", &command, self.text()]);
        let errors = String::from_utf8_lossy(&dumped.stderr);
        let complaints = errors.lines().filter(|line| !line.starts_with("debugfs 1.")).count();
        assert!(dumped.status.success() && complaints == 0, "debugfs: {}", told(&dumped));
        into
    }

    /// Mounts it by the kernel's own driver, through a loop device; `None` where that is not
    /// allowed.
    ///
    /// # Panics
    /// If there is no mount(8).
    #[must_use]
    pub fn by_the_kernel(&self, read_only: bool) -> Option<Looped> {
        let place = self.directory(if read_only { "kernel-ro" } else { "kernel" });
        let options = if read_only { "loop,ro" } else { "loop" };
        let mounted = run(
            "mount",
            &["-t", "ext2", "-o", options, self.text(), place.to_str().expect("UTF-8")],
        );
        mounted.status.success().then_some(Looped(place))
    }
}

/// The kernel's own driver on an image. Unmounted in the end.
#[derive(Debug)]
pub struct Looped(PathBuf);

impl Looped {
    /// The mount point.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Looped {
    fn drop(&mut self) {
        let place = self.0.to_str().expect("UTF-8");
        if !run("umount", &[place]).status.success() {
            let _ = run("umount", &["-l", place]);
        }
        let _ = std::fs::remove_dir(&self.0);
    }
}
