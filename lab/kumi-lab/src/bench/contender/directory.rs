//! A run-time directory of the benchmark's own: the address spaces in it are those that it starts,
//! and nobody else's.

use std::fs;
use std::path::{Path, PathBuf};

use kumihimo_machine::client::Machine;

/// Gone when it is dropped, with what ended address spaces left in it.
pub struct Directory(PathBuf);

impl Directory {
    pub fn new(bench: &str) -> Result<Directory, String> {
        Directory::at(
            std::env::temp_dir().join(format!("kumi-bench-{bench}-{}", std::process::id())),
        )
    }

    pub fn at(path: PathBuf) -> Result<Directory, String> {
        // Made as an address space makes it: for its user only.
        kumihimo_machine::directory::Directory::own(&path).map_err(|e| e.to_string())?;
        Ok(Directory(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The argument that has a contender join here.
    pub fn argument(&self) -> String {
        format!("directory={}", self.0.display())
    }

    /// Those that live in it.
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
    fn nobody_is_in_it_and_it_goes() {
        let directory = Directory::new("test").unwrap();
        assert!(directory.machine().unwrap().spaces().unwrap().is_empty());
        let path = directory.path().to_owned();
        drop(directory);
        assert!(!path.exists());
    }
}
