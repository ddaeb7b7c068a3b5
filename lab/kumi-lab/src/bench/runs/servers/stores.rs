//! The served stores: a directory, and an ext2 image with the same files.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use kumihimo_bench_files::{shim, tree};

use crate::bench::contender::Trouble;
use crate::bench::contender::directory::Directory;
use crate::bench::contender::rivals;

const MEMORY: &str = "/dev/shm";
/// Block size of the image, which is that of most disks.
const BLOCK: &str = "4096";

/// A directory in memory if there is such a file system, because disk delays are simulated where
/// needed. Removed when dropped.
pub struct Stores {
    path: PathBuf,
    /// Run-time directory in which Kumihimo's address spaces find each other.
    directory: Directory,
}

fn told(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |e| format!("{}: {e}", path.display())
}

impl Stores {
    pub fn new() -> Result<Stores, Trouble> {
        let memory = Path::new(MEMORY);
        let below = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
        let path = below.join(format!("kumi-servers-{}", std::process::id()));
        fs::create_dir(&path).map_err(told(&path))?;
        // From here on, the directory is removed after any failure.
        let stores = Stores { directory: Directory::at(path.join("machine"))?, path };
        let files = stores.files();
        fs::create_dir(&files).map_err(told(&files))?;
        tree::fill(&files).map_err(told(&files))?;
        Ok(stores)
    }

    /// The directory with the files.
    pub fn files(&self) -> PathBuf {
        self.path.join("files")
    }

    /// Creates a mount point.
    pub fn mount_point(&self, name: &str) -> Result<PathBuf, String> {
        let path = self.path.join(name);
        fs::create_dir_all(&path).map_err(told(&path))?;
        Ok(path)
    }

    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// An image for one kind of server, because no server reads another one's writes. Created on
    /// first use.
    pub fn image(&self, whose: &str) -> Result<PathBuf, Trouble> {
        let path = self.path.join(format!("{whose}.ext2"));
        if !path.exists() {
            let file = fs::File::create(&path).map_err(told(&path))?;
            file.set_len(tree::STORE_BYTES).map_err(told(&path))?;
            let mut mke2fs = Command::new("mke2fs");
            mke2fs
                .args(["-q", "-F", "-t", "ext2", "-b", BLOCK, "-m", "0", "-d"])
                .arg(self.files())
                .arg(&path);
            let made = mke2fs.output().map_err(|e| match e.kind() {
                std::io::ErrorKind::NotFound => Trouble::Refused(
                    "mke2fs is not installed (apt-get install e2fsprogs)".to_owned(),
                ),
                _ => Trouble::Failed(format!("mke2fs: {e}")),
            })?;
            if !made.status.success() {
                fs::remove_file(&path).map_err(told(&path))?;
                return Err(
                    format!("mke2fs: {}", String::from_utf8_lossy(&made.stderr).trim()).into()
                );
            }
        }
        Ok(path)
    }

    /// The library that redirects commands' requests for the time to the clock, built with
    /// everything else.
    pub fn shim(&self) -> Result<PathBuf, String> {
        let target = rivals::target_directory().join("rivals").join("clock");
        fs::create_dir_all(&target).map_err(told(&target))?;
        shim(&target)
    }
}

impl Drop for Stores {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
