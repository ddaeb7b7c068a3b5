//! A temporary folder, and the command in it.

use std::fs::File;
use std::path::PathBuf;
use std::process::{Command, Output};

use kumihimo_trace::script::Script;

pub(crate) const KUMI: &str = env!("CARGO_BIN_EXE_kumi");

/// A folder, removed when dropped.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("kumi-report-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    /// As [`new`](Folder::new), on a file system in memory if there is one.
    pub(crate) fn in_memory(name: &str) -> Folder {
        let memory = PathBuf::from("/dev/shm");
        if !memory.is_dir() {
            return Folder::new(name);
        }
        let path = memory.join(format!("kumi-report-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a folder");
        Folder(path)
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a trace.
    pub(crate) fn trace(&self, name: &str, script: &Script) {
        script.write(File::create(self.file(name)).expect("a file")).expect("room");
    }

    /// Runs `kumi trace report ARGS`.
    pub(crate) fn report(&self, args: &[&str]) -> (Output, String) {
        let output = Command::new(KUMI)
            .args(["trace", "report"])
            .args(args)
            .current_dir(&self.0)
            .output()
            .expect("kumi");
        let said = String::from_utf8_lossy(&output.stderr).into_owned()
            + &String::from_utf8_lossy(&output.stdout);
        (output, said)
    }

    /// Returns the address of a file, for a browser.
    pub(crate) fn address(&self, name: &str) -> String {
        format!("file://{}", self.file(name).display())
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("readable").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
