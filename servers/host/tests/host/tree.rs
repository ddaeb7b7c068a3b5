//! A temporary directory for one test.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use kumihimo_host::{Host, Settings};
use kumihimo_store::{Caller, Entry, Listed, New, Node, Result, Store};

/// The user that runs the tests.
pub fn caller() -> Caller {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    Caller { uid, gid, pid: std::process::id(), umask: 0 }
}

/// A temporary directory. The subdirectory `inside` is served. Removed when dropped.
pub struct Tree {
    pub path: PathBuf,
    pub host: Host,
}

impl Tree {
    pub fn new() -> Tree {
        Tree::with(Settings::default())
    }

    pub fn with(settings: Settings) -> Tree {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("kumihimo-host-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(path.join("inside")).expect("a directory");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).expect("chmod");
        let host = Host::open(&path.join("inside"), settings).expect("a store");
        Tree { path, host }
    }

    pub fn inside(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join("inside").join(name)
    }

    pub fn root(&self) -> Node {
        self.host.root()
    }

    /// Looks up a path from the root.
    pub fn find(&self, names: &[&str]) -> Result<Entry> {
        let mut entry = self.host.lookup(self.root(), b".")?;
        for name in names {
            entry = self.host.lookup(entry.attributes.node, name.as_bytes())?;
        }
        Ok(entry)
    }

    pub fn make(&self, directory: Node, name: &str, what: New<'_>) -> Node {
        self.host.make(&caller(), directory, name.as_bytes(), what).expect(name).attributes.node
    }

    /// Names in a directory, sorted.
    pub fn list(&self, directory: Node) -> Vec<String> {
        let handle = self.host.open(directory, 0o200_000).expect("opendir");
        let mut names = Vec::new();
        let mut take = |listed: Listed<'_>| {
            names.push(String::from_utf8_lossy(listed.name).into_owned());
            true
        };
        self.host.read_directory(directory, handle, 0, &mut take).expect("readdir");
        self.host.release(directory, handle);
        names.sort();
        names
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

pub const RDONLY: u32 = 0;
pub const WRONLY: u32 = 1;
pub const RDWR: u32 = 2;
