//! ext2 images, and programs of e2fsprogs that make, check and read them.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::place::Scratch;

/// Runs a program.
///
/// # Panics
/// If the program cannot be started.
pub(crate) fn run(program: &str, arguments: &[&str]) -> Output {
    let ran = Command::new(program)
        .args(arguments)
        .env("LC_ALL", "C")
        .stdin(std::process::Stdio::null())
        .output();
    ran.unwrap_or_else(|e| panic!("{program}: {e}"))
}

/// Output and exit status of a program, as text.
pub(crate) fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}\n{}{}", output.status, text(&output.stdout), text(&output.stderr))
}

/// Returns whether the program is installed.
pub(crate) fn has(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let usual = ["/sbin", "/usr/sbin"].map(PathBuf::from);
    std::env::split_paths(&path).chain(usual).any(|directory| directory.join(program).is_file())
}

/// An image in its own temporary directory, removed when dropped.
#[derive(Debug)]
pub struct Image {
    scratch: Scratch,
    path: PathBuf,
}

impl Image {
    /// Returns whether the programs that make, check and read images are installed.
    #[must_use]
    pub fn can_be_made() -> bool {
        ["mke2fs", "e2fsck", "debugfs"].iter().all(|program| has(program))
    }

    /// Makes an image with `mke2fs -t ext2`: its size in megabytes and its block size in bytes.
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

    /// Path of the image file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a directory beside the image.
    #[must_use]
    pub fn directory(&self, name: &str) -> PathBuf {
        self.scratch.directory(name)
    }

    fn text(&self) -> &str {
        self.path.to_str().expect("UTF-8")
    }

    /// Asserts that `e2fsck -fn` finds no error.
    ///
    /// # Panics
    /// If `e2fsck` finds an error.
    pub fn expect_clean(&self) {
        let checked = run("e2fsck", &["-fn", self.text()]);
        assert!(checked.status.success(), "e2fsck -fn: {}", told(&checked));
    }

    /// Asserts that `e2fsck -p` repairs the image after a crash completely and without questions.
    ///
    /// # Panics
    /// If `e2fsck` needs an answer, or errors are left.
    pub fn repair(&self) {
        let repaired = run("e2fsck", &["-p", "-f", self.text()]);
        // Exit status 1: errors were corrected, see e2fsck(8).
        assert!(matches!(repaired.status.code(), Some(0 | 1)), "e2fsck -p: {}", told(&repaired));
        self.expect_clean();
    }

    /// Extracts the image's files with debugfs(8) into a new directory.
    ///
    /// # Panics
    /// If debugfs(8) reports an error.
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

    /// Mounts the image with the kernel's driver, through a loop device. Returns `None` if the
    /// mount is not permitted.
    ///
    /// # Panics
    /// If mount(8) cannot be started.
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

/// An image mounted by the kernel's driver. Unmounted when dropped.
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
