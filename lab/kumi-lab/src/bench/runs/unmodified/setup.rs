//! The scratch folder of a benchmark, which is removed at its end.

use std::cell::{Cell, OnceCell};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::bench::contender::installed::installed;
use crate::bench::contender::rivals::repository;
use crate::bench::contender::{Trouble, output_on, own_cores};

/// A virtual machine and the compiled server.
#[derive(Clone, Debug)]
pub struct Java {
    pub machine: PathBuf,
    pub release: u32,
    pub classes: PathBuf,
}

/// The scratch folder, and what is made once in it.
pub struct Setup {
    folder: PathBuf,
    servers: Cell<usize>,
    /// Java's virtual machine and the compiled server.
    pub java: OnceCell<Result<Java, Trouble>>,
    /// MariaDB's empty data folder.
    pub mariadb: OnceCell<Result<PathBuf, Trouble>>,
}

/// A server that is ready to start.
pub struct Prepared {
    pub command: Command,
    /// The server's own folder.
    pub folder: PathBuf,
    /// Notes of its rows.
    pub remarks: String,
}

impl Setup {
    /// Creates the scratch folder among the temporary files.
    pub fn new() -> Result<Setup, Trouble> {
        use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let name = format!("kumi-run-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let folder = std::env::temp_dir().join(name);
        make_folder(&folder)?;
        Ok(Setup { folder, servers: Cell::new(0), java: OnceCell::new(), mariadb: OnceCell::new() })
    }

    /// A new folder of its own.
    pub fn folder(&self, name: &str) -> Result<PathBuf, Trouble> {
        self.servers.set(self.servers.get() + 1);
        let folder = self.folder.join(format!("{name}-{}", self.servers.get()));
        make_folder(&folder)?;
        Ok(folder)
    }

    /// A path in the scratch folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Compiles a program of `lab/programs`, unless it is there.
    pub fn compiled(&self, name: &str) -> Result<PathBuf, Trouble> {
        let program = self.path(name);
        if !program.is_file() {
            let cc = installed("cc", "a C compiler: apt-get install gcc libc6-dev")?;
            let mut cc = Command::new(cc);
            cc.args(["-O2", "-pthread", "-o"]).arg(&program).arg(source(&format!("{name}.c")));
            output_on(&own_cores(), &mut cc)?;
        }
        Ok(program)
    }
}

impl Drop for Setup {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn make_folder(folder: &Path) -> Result<(), Trouble> {
    std::fs::create_dir(folder).map_err(|e| format!("{}: {e}", folder.display()).into())
}

/// A file of `lab/programs`.
pub fn source(name: &str) -> PathBuf {
    repository().join("lab/programs").join(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scratch_folder_is_removed_with_its_contents() {
        let setup = Setup::new().unwrap();
        let (one, other) = (setup.folder("a").unwrap(), setup.folder("a").unwrap());
        assert!(one != other && one.is_dir());
        std::fs::write(one.join("file"), "").unwrap();
        let folder = setup.folder.clone();
        drop(setup);
        assert!(!folder.exists());
    }

    #[test]
    fn sources_of_compiled_programs_exist() {
        for name in ["echo.c", "locks.c", "threads.c", "Echo.java", "http_server.py"] {
            assert!(source(name).is_file(), "{name}");
        }
    }
}
