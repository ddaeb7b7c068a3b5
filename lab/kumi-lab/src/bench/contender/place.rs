//! A directory in memory shared by two processes, for sockets, pipes and mapped files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::directory::Directory;

const MEMORY: &str = "/dev/shm";

/// A directory that is removed when dropped, with its contents and with files beside it that begin
/// with its name (iceoryx2 puts its segments there).
pub struct Place {
    path: PathBuf,
    /// Run-time directory in which Kumihimo's address spaces find each other.
    directory: Directory,
}

impl Place {
    /// Creates a directory in memory if there is such a file system, otherwise among the temporary
    /// files.
    pub fn new(bench: &str) -> Result<Place, String> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let memory = Path::new(MEMORY);
        let below = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = below.join(format!(
            "kumi-{bench}-{}-{}",
            std::process::id(),
            MADE.fetch_add(1, Relaxed)
        ));
        fs::create_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let directory = Directory::at(path.join("machine"));
        match directory {
            Ok(directory) => Ok(Place { path, directory }),
            Err(why) => {
                let _ = fs::remove_dir_all(&path);
                Err(why)
            }
        }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The run-time directory in it.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The arguments with the directory's path.
    pub fn arguments(&self) -> [String; 2] {
        [format!("place={}", self.path.display()), self.directory.argument()]
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
        let beside =
            self.path.file_name().map(|name| format!("{}_", name.display())).unwrap_or_default();
        for entry in fs::read_dir(MEMORY).into_iter().flatten().flatten() {
            if entry.file_name().to_str().is_some_and(|name| name.starts_with(&beside)) {
                let _ = fs::remove_file(entry.path());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_places_are_separate_and_removed_with_adjacent_files() {
        let (one, other) = (Place::new("place-test").unwrap(), Place::new("place-test").unwrap());
        assert_ne!(one.path, other.path);
        fs::write(one.path.join("file"), "").unwrap();
        let beside =
            one.path.with_file_name(format!("{}_beside", one.path.file_name().unwrap().display()));
        let in_memory = beside.starts_with(MEMORY);
        fs::write(&beside, "").unwrap();
        let paths = [one.path.clone(), other.path.clone()];
        drop((one, other));
        assert!(paths.iter().all(|path| !path.exists()));
        assert!(!in_memory || !beside.exists());
        let _ = fs::remove_file(beside);
    }
}
