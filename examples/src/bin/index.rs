//! Indexes a directory tree: the words of each file with their frequencies. Each directory and each
//! file has a microprocess.
//!
//! `cargo run --release -p kumihimo-examples --bin index FOLDER WORD...`

use kumihimo::fs;
use kumihimo::sync::{Mutex, Semaphore};
use kumihimo::thread::{self, Scope};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};

/// Maximum number of open files.
const OPEN: usize = 128;

struct Index {
    /// For each word, its frequency in each file.
    words: Mutex<HashMap<String, BTreeMap<PathBuf, usize>>>,
    files: Mutex<usize>,
    open: Semaphore,
}

impl Index {
    fn folder<'s>(&'s self, folder: &Path, scope: &'s Scope<'s, '_>) -> io::Result<()> {
        let _open = self.open.acquire();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let (kind, path) = (entry.file_type()?, entry.path());
            if kind.is_dir() {
                scope.spawn(move || told(&path, self.folder(&path, scope)));
            } else if kind.is_file() {
                scope.spawn(move || told(&path, self.file(&path)));
            }
        }
        Ok(())
    }

    fn file(&self, path: &Path) -> io::Result<()> {
        let bytes = {
            let _open = self.open.acquire();
            fs::read(path)?
        };
        let mut counts = HashMap::<String, usize>::new();
        for word in String::from_utf8_lossy(&bytes)
            .split(|c: char| !c.is_alphanumeric())
            .filter(|w| !w.is_empty())
        {
            *counts.entry(word.to_lowercase()).or_default() += 1;
        }
        let mut words = self.words.lock().expect("no panic while locked");
        for (word, n) in counts {
            words.entry(word).or_default().insert(path.to_owned(), n);
        }
        *self.files.lock().expect("no panic while locked") += 1;
        Ok(())
    }
}

/// Reports a file or directory that cannot be read. It is skipped.
fn told(path: &Path, outcome: io::Result<()>) {
    if let Err(e) = outcome {
        eprintln!("{}: {e}", path.display());
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().expect("FOLDER WORD..."));
    let index =
        Index { words: Mutex::default(), files: Mutex::default(), open: Semaphore::new(OPEN) };
    thread::scope(|s| told(&folder, index.folder(&folder, s)));
    let (words, files) = (
        index.words.into_inner().expect("no panic while locked"),
        index.files.into_inner().expect("no panic while locked"),
    );
    println!("{files} files, {} words", words.len());
    for word in arguments {
        for (path, n) in words.get(&word.to_lowercase()).into_iter().flatten() {
            println!("{word} {n} {}", path.strip_prefix(&folder).unwrap_or(path).display());
        }
    }
}
