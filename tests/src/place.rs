//! A run-time directory of a test's own.

use std::path::PathBuf;

/// Removed with the test. Its processes get it as `KUMI_DIR`.
pub struct Place(pub PathBuf);

impl Place {
    /// # Panics
    /// If it cannot be made.
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

    /// As an environment's value.
    ///
    /// # Panics
    /// If it is not UTF-8.
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
