//! Workload for a store whose power will be cut: creates, writes, syncs, renames, links, truncates
//! and removes files, and creates, moves and removes directories.

use std::collections::BTreeSet;

use kumihimo_store::{Errno, New, Result, Store};
use kumihimo_tests::Random;

use super::Ledger;
use crate::disks::{Memory, Recorder};
use crate::paths::{self, Opened};

/// Size of the workload.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Maximum number of bytes in one write.
    pub write: u64,
    /// Maximum offset of a write.
    pub offset: u64,
    /// Maximum number of files that exist at a time.
    pub files: usize,
    /// Whether directories are renamed, too.
    pub moves: bool,
}

/// A workload in progress.
pub struct Load<'a, S: Store + ?Sized> {
    store: &'a S,
    disk: Recorder<Memory>,
    random: Random,
    size: Size,
    files: BTreeSet<String>,
    directories: BTreeSet<String>,
    /// Files that are removed but still open.
    open: Vec<Opened<'a, S>>,
    /// Contents that must be found after a cut.
    pub ledger: Ledger,
    /// Operations so far, each with the position at its start: for the report of a failure.
    pub log: Vec<(usize, String)>,
    number: u64,
}

impl<'a, S: Store + ?Sized> Load<'a, S> {
    /// Starts on an empty store on `disk`.
    pub fn new(store: &'a S, disk: Recorder<Memory>, random: Random, size: Size) -> Load<'a, S> {
        Load {
            store,
            disk,
            random,
            size,
            files: BTreeSet::new(),
            directories: BTreeSet::from([String::new()]),
            open: Vec::new(),
            ledger: Ledger::default(),
            log: Vec::new(),
            number: 0,
        }
    }

    fn choose(&mut self, from: &BTreeSet<String>) -> Option<String> {
        let bound = from.len() as u64;
        (bound > 0).then(|| {
            from.iter().nth(usize::try_from(self.random.below(bound)).expect("small")).cloned()
        })?
    }

    fn file(&mut self) -> Option<String> {
        let files = std::mem::take(&mut self.files);
        let file = self.choose(&files);
        self.files = files;
        file
    }

    fn directory(&mut self) -> String {
        let directories = std::mem::take(&mut self.directories);
        let directory = self.choose(&directories);
        self.directories = directories;
        directory.unwrap_or_default()
    }

    /// An unused path, possibly with a name that was in use before.
    fn fresh(&mut self, kind: char) -> Option<String> {
        let directory = self.directory();
        let path = match self.random.below(12) {
            // A long name, so that the directory needs more than one block.
            0 => {
                self.number += 1;
                format!("{directory}/{kind}{:0>200}", self.number)
            }
            number => format!("{directory}/{kind}{number}"),
        };
        let deep = path.matches('/').count() > 4;
        (!deep && !self.files.contains(&path) && !self.directories.contains(&path)).then_some(path)
    }

    /// Bytes that are unique to each write.
    fn bytes(&mut self) -> Vec<u8> {
        let length = usize::try_from(1 + self.random.below(self.size.write)).expect("small");
        let mut random = self.random.split();
        (0..length).map(|_| u8::try_from(random.below(256)).expect("below 256")).collect()
    }

    /// Performs one random operation.
    ///
    /// # Errors
    /// An operation that failed for a reason other than `ENOSPC`.
    pub fn step(&mut self) -> std::result::Result<(), String> {
        let begin = self.disk.position();
        let (what, result) = match self.random.below(24) {
            0..=4 => self.make(begin),
            5..=7 => self.write(begin),
            8 => self.truncate(begin),
            9..=12 => self.sync(),
            13..=15 => self.rename(begin),
            16 => self.link(begin),
            17 | 18 => self.unlink(begin),
            19 => self.make_directory(),
            20 => self.remove_directory(),
            21 if self.size.moves => self.rename_directory(begin),
            21 => self.make_directory(),
            22 => self.sync_directory(),
            _ => self.other(),
        };
        self.log.push((begin, format!("{what} = {result:?}")));
        match result {
            // An operation that fails with `ENOSPC` may have been performed in part.
            Ok(()) | Err(Errno::NOSPC) => Ok(()),
            Err(errno) => Err(format!("{what}: {errno}")),
        }
    }

    fn make(&mut self, begin: usize) -> (String, Result<()>) {
        let Some(path) = self.fresh('f').filter(|_| self.files.len() < self.size.files) else {
            return ("nothing".to_owned(), Ok(()));
        };
        let bytes = self.bytes();
        let what = format!("make {path} of {} bytes", bytes.len());
        let made = paths::create(self.store, &path);
        let result = made.and_then(|open| {
            self.ledger.make(begin, &path);
            self.files.insert(path.clone());
            open.write(0, &bytes).map(|_| ())
        });
        (what, result)
    }

    fn write(&mut self, begin: usize) -> (String, Result<()>) {
        if let Some(open) = self.open.last()
            && self.random.one_in(4)
        {
            return ("write to a removed file".to_owned(), open.write(100, &[1; 3000]).map(|_| ()));
        }
        let Some(path) = self.file() else { return ("nothing".to_owned(), Ok(())) };
        let bytes = self.bytes();
        let size = paths::find(self.store, &path).map_or(0, |found| found.size);
        let offset = if self.random.one_in(2) { size } else { self.random.below(self.size.offset) };
        self.ledger.write(begin, &path);
        let result = paths::open(self.store, &path).and_then(|open| open.write(offset, &bytes));
        (format!("write {} bytes at {offset} of {path}", bytes.len()), result.map(|_| ()))
    }

    fn truncate(&mut self, begin: usize) -> (String, Result<()>) {
        let Some(path) = self.file() else { return ("nothing".to_owned(), Ok(())) };
        let size = if self.random.one_in(3) { 0 } else { self.random.below(self.size.offset * 2) };
        self.ledger.write(begin, &path);
        (
            format!("truncate {path} to {size}"),
            paths::open(self.store, &path).and_then(|open| open.truncate(size)),
        )
    }

    fn sync(&mut self) -> (String, Result<()>) {
        let Some(path) = self.file() else { return ("nothing".to_owned(), Ok(())) };
        let data = self.random.one_in(4);
        let result = paths::open(self.store, &path).and_then(|open| {
            let contents = open.contents()?;
            open.sync(data)?;
            self.ledger.sync(self.disk.position(), &path, &contents);
            Ok(())
        });
        (format!("sync {path}, ended at {}", self.disk.position()), result)
    }

    fn rename(&mut self, begin: usize) -> (String, Result<()>) {
        let to = if self.random.one_in(2) { self.file() } else { self.fresh('f') };
        let (Some(from), Some(to)) = (self.file(), to) else {
            return ("nothing".to_owned(), Ok(()));
        };
        let same = paths::find(self.store, &from).map(|found| found.node).ok()
            == paths::find(self.store, &to).map(|found| found.node).ok();
        let result = paths::rename(self.store, &from, &to);
        if result.is_ok() && !same {
            self.ledger.rename(begin, &from, &to);
            self.files.remove(&from);
            self.files.insert(to.clone());
        }
        (format!("rename {from} to {to}"), result)
    }

    fn link(&mut self, begin: usize) -> (String, Result<()>) {
        let (Some(from), Some(to)) = (self.file(), self.fresh('f')) else {
            return ("nothing".to_owned(), Ok(()));
        };
        let result = paths::link(self.store, &from, &to);
        if result.is_ok() {
            self.ledger.link_path(begin, &from, &to);
            self.files.insert(to.clone());
        }
        (format!("link {from} to {to}"), result)
    }

    fn unlink(&mut self, begin: usize) -> (String, Result<()>) {
        let Some(path) = self.file() else { return ("nothing".to_owned(), Ok(())) };
        let open = self.random.one_in(3).then(|| paths::open(self.store, &path));
        let result = paths::unlink(self.store, &path);
        if result.is_ok() {
            self.ledger.unlink(begin, &path);
            self.files.remove(&path);
        }
        let what = format!("unlink {path}{}", if open.is_some() { ", which is open" } else { "" });
        // A file with another name left is not a removed file: a write through the open file would
        // change the contents under that name.
        let nameless = |open: &Opened<'a, S>| {
            self.store.attributes(open.node()).is_ok_and(|now| now.links == 0)
        };
        let open = open.and_then(Result::ok).filter(nameless);
        self.open.extend(open);
        (what, result)
    }

    fn make_directory(&mut self) -> (String, Result<()>) {
        let Some(path) = self.fresh('d').filter(|_| self.directories.len() < 12) else {
            return ("nothing".to_owned(), Ok(()));
        };
        let result = paths::make(self.store, &path, New::Directory { mode: 0o755 }).map(|_| ());
        if result.is_ok() {
            self.directories.insert(path.clone());
        }
        (format!("make directory {path}"), result)
    }

    fn is_empty(&self, directory: &str) -> bool {
        let inside = format!("{directory}/");
        !self.files.iter().chain(&self.directories).any(|path| path.starts_with(&inside))
    }

    fn remove_directory(&mut self) -> (String, Result<()>) {
        let path = self.directory();
        if path.is_empty() || !self.is_empty(&path) {
            return ("nothing".to_owned(), Ok(()));
        }
        let result = paths::remove_directory(self.store, &path);
        if result.is_ok() {
            self.directories.remove(&path);
        }
        (format!("remove directory {path}"), result)
    }

    fn rename_directory(&mut self, begin: usize) -> (String, Result<()>) {
        let from = self.directory();
        // The target is a new name or an empty directory.
        let over = self
            .random
            .one_in(3)
            .then(|| self.directory())
            .filter(|path| !path.is_empty() && self.is_empty(path));
        let Some(to) = over.or_else(|| self.fresh('d')) else {
            return ("nothing".to_owned(), Ok(()));
        };
        if from.is_empty()
            || to == from
            || to.starts_with(&format!("{from}/"))
            || from.starts_with(&format!("{to}/"))
        {
            return ("nothing".to_owned(), Ok(()));
        }
        let result = paths::rename(self.store, &from, &to);
        if result.is_ok() {
            self.ledger.rename_directory(begin, &from, &to);
            let inside = format!("{from}/");
            let moved = |path: &String| match path.strip_prefix(&inside) {
                Some(rest) => format!("{to}/{rest}"),
                None if *path == from => to.clone(),
                None => path.clone(),
            };
            self.files = self.files.iter().map(moved).collect();
            self.directories = self.directories.iter().map(moved).collect();
        }
        (format!("rename directory {from} to {to}"), result)
    }

    fn sync_directory(&mut self) -> (String, Result<()>) {
        let path = self.directory();
        let result = paths::open(self.store, &path).and_then(|open| open.sync(false));
        if result.is_ok() {
            self.ledger.sync_directory(self.disk.position(), &path);
        }
        (format!("sync directory {path:?}, ended at {}", self.disk.position()), result)
    }

    fn other(&mut self) -> (String, Result<()>) {
        if self.random.one_in(2) {
            self.open.clear();
            return ("close a removed file".to_owned(), Ok(()));
        }
        let store = self.store;
        let result = store.sync_all();
        if result.is_ok() {
            self.ledger.sync_all(self.disk.position(), |path| paths::contents(store, path).ok());
        }
        (format!("sync all, ended at {}", self.disk.position()), result)
    }
}
