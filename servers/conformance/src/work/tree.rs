//! Snapshots of file trees, for comparisons.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// Names, types and contents of all files. If both file systems keep them: also modes, owners, link
/// counts and times.
#[derive(Debug, PartialEq, Eq)]
pub struct Tree(BTreeMap<PathBuf, String>);

impl Tree {
    /// Reads names, types, contents and link targets.
    ///
    /// # Panics
    /// If something cannot be read.
    #[must_use]
    pub fn of(path: &Path) -> Tree {
        Tree::read(path, |_| String::new())
    }

    /// As [`of`](Tree::of), with modes, link counts, owners and modification times.
    ///
    /// # Panics
    /// If something cannot be read.
    #[must_use]
    pub fn with_attributes(path: &Path) -> Tree {
        Tree::read(path, |metadata| {
            let links = metadata.nlink();
            let (mode, uid, gid) = (metadata.mode(), metadata.uid(), metadata.gid());
            let (seconds, nanoseconds) = (metadata.mtime(), metadata.mtime_nsec());
            format!(
                " mode {mode:o} links {links} owner {uid}:{gid} mtime {seconds}.{nanoseconds:09}"
            )
        })
    }

    /// Number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the tree is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn read(path: &Path, attributes: impl Fn(&Metadata) -> String) -> Tree {
        let mut all = BTreeMap::new();
        let mut left = vec![path.to_owned()];
        while let Some(directory) = left.pop() {
            let listed = std::fs::read_dir(&directory)
                .unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
            for entry in listed {
                let found = entry.unwrap_or_else(|e| panic!("{}: {e}", directory.display())).path();
                let metadata =
                    found.symlink_metadata().unwrap_or_else(|e| panic!("{}: {e}", found.display()));
                let name = found.strip_prefix(path).expect("it is below").to_owned();
                // mke2fs(8) creates this directory.
                if name.as_os_str() == OsStr::new("lost+found") {
                    continue;
                }
                let what = describe(&found, &metadata) + &attributes(&metadata);
                if metadata.is_dir() {
                    left.push(found);
                }
                all.insert(name, what);
            }
        }
        Tree(all)
    }

    /// Asserts that another tree is equal.
    ///
    /// # Panics
    /// If the trees differ, with the differences.
    pub fn expect(&self, other: &Tree, what: &str) {
        let names = self.0.keys().chain(other.0.keys().filter(|name| !self.0.contains_key(*name)));
        let differing = names.filter(|name| self.0.get(*name) != other.0.get(*name));
        let lines: Vec<_> = differing
            .map(|name| {
                format!("{}:\n  {:?}\n  {:?}", name.display(), self.0.get(name), other.0.get(name))
            })
            .collect();
        assert!(
            lines.is_empty(),
            "{what}: {} of {} differ:\n{}",
            lines.len(),
            self.len(),
            lines[..lines.len().min(20)].join("\n")
        );
    }
}

fn describe(path: &Path, metadata: &Metadata) -> String {
    let kind = metadata.file_type();
    if kind.is_symlink() {
        let target = std::fs::read_link(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        format!("link to {}", target.as_os_str().as_bytes().escape_ascii())
    } else if kind.is_file() {
        let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        assert_eq!(bytes.len() as u64, metadata.len(), "{}: its size", path.display());
        let sum: String = Sha256::digest(&bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        format!("file of {} bytes {sum}", bytes.len())
    } else if kind.is_dir() {
        "directory".to_owned()
    } else if kind.is_fifo() {
        "fifo".to_owned()
    } else {
        format!("special {:?} {}", kind, metadata.rdev())
    }
}
