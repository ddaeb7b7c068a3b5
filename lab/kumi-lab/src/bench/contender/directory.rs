//! A run-time directory of the benchmark: it contains only address spaces that the benchmark
//! starts.

use std::fs;
use std::path::{Path, PathBuf};

use kumihimo_machine::client::Machine;

/// A directory that is removed when dropped, with the remains of ended address spaces.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(bench: &str) -> Result<Directory, String> {
        Directory::at(
            std::env::temp_dir().join(format!("kumi-bench-{bench}-{}", std::process::id())),
        )
    }

    pub fn at(path: PathBuf) -> Result<Directory, String> {
        // Created like an address space does, accessible for its user only.
        kumihimo_machine::directory::Directory::own(&path).map_err(|e| e.to_string())?;
        Ok(Directory(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The argument that makes a contender join in this directory.
    pub fn argument(&self) -> String {
        format!("directory={}", self.0.display())
    }

    /// The address spaces in the directory.
    pub fn machine(&self) -> Result<Machine, String> {
        Machine::at(&self.0).map_err(|e| e.to_string())
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directory_is_empty_and_removed_when_dropped() {
        let directory = Directory::new("test").unwrap();
        assert!(directory.machine().unwrap().spaces().unwrap().is_empty());
        let path = directory.path().to_owned();
        drop(directory);
        assert!(!path.exists());
    }
}
