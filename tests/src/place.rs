//! A temporary run-time directory for a test.

use std::path::PathBuf;

/// A temporary directory, removed when dropped. The test's child processes get it as `KUMI_DIR`.
pub struct Place(pub PathBuf);

impl Place {
    /// # Panics
    /// If the directory cannot be created.
    #[must_use]
    pub fn new(name: &str) -> Place {
        let path = std::env::temp_dir().join(format!(
            "kumihimo-test-{}-{}",
            name.replace(':', "-"),
            std::process::id()
        ));
        std::fs::create_dir(&path).expect("a directory");
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o700))
            .expect("its mode");
        Place(path)
    }

    /// The path as text, for an environment variable.
    ///
    /// # Panics
    /// If the path is not valid UTF-8.
    #[must_use]
    pub fn path(&self) -> &str {
        self.0.to_str().expect("a path")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
