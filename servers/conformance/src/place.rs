//! Temporary directories for tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// An empty temporary directory, removed when dropped.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates a directory; `name` identifies its test.
    ///
    /// # Panics
    /// If the directory cannot be created.
    #[must_use]
    pub fn new(name: &str) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("kumihimo-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).expect("a directory can be made");
        Scratch(path)
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Creates a directory in this one.
    ///
    /// # Panics
    /// If the directory cannot be created.
    #[must_use]
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir(&path).expect("a directory can be made");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // rm(1) with --one-file-system: does not delete the contents of a mount that a failed test
        // left below.
        let _ = std::process::Command::new("rm")
            .args(["-rf", "--one-file-system"])
            .arg(&self.0)
            .status();
    }
}
