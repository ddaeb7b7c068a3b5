//! Directories for tests.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// An empty directory of this machine, removed in the end.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes one; `name` tells whose it is.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("kumihimo-{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a directory can be made");
        Scratch(path)
    }

    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// A new directory in it.
    ///
    /// # Panics
    /// If it cannot be made.
    #[must_use]
    pub fn directory(&self, name: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::create_dir(&path).expect("a directory can be made");
        path
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // By rm(1), which stays on this file system: whatever a failed test left mounted below is
        // not emptied.
        let _ = std::process::Command::new("rm")
            .args(["-rf", "--one-file-system"])
            .arg(&self.0)
            .status();
    }
}
