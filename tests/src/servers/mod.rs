//! Real servers for tests of programs that connect to them, each with its data in a temporary
//! directory.

mod postgres;
mod redis;

pub use postgres::Postgres;
pub use redis::Redis;

use std::path::{Path, PathBuf};
use std::process::Child;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Returns whether a program is in the search path.
#[must_use]
pub fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A running server and its directory. Both go when dropped.
struct Running {
    child: Child,
    folder: PathBuf,
}

impl Running {
    /// What the server has written. Panics if it has ended.
    fn log(&mut self) -> String {
        let log = std::fs::read_to_string(self.folder.join("log")).expect("text");
        assert!(self.child.try_wait().expect("our child").is_none(), "{log}");
        log
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// Creates an empty directory for a server.
fn folder(server: &str) -> PathBuf {
    static CREATED: AtomicUsize = AtomicUsize::new(0);
    let n = CREATED.fetch_add(1, Ordering::Relaxed);
    let folder = std::env::temp_dir().join(format!("kumihimo-{server}-{}-{n}", std::process::id()));
    std::fs::create_dir(&folder).expect("a new directory");
    folder
}

/// A file for a server's output, which is also its standard error.
fn log(folder: &Path) -> (std::fs::File, std::fs::File) {
    let log = std::fs::File::create(folder.join("log")).expect("a new file");
    (log.try_clone().expect("a descriptor"), log)
}
