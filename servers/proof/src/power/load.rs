//! Work for a store whose power will be cut: files that are made, written, synced, renamed over one
//! another, linked, truncated, removed, in directories that come, go and move.

use std::collections::BTreeSet;

use kumihimo_store::{Errno, New, Result, Store};
use kumihimo_tests::Random;

use super::Ledger;
use crate::disks::{Memory, Recorder};
use crate::paths::{self, Opened};

/// How large the files become.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Bytes written at once, at most.
    pub write: u64,
    /// Where writes begin, at most.
    pub offset: u64,
    /// Files at once, at most.
    pub files: usize,
    /// Whether directories are renamed, too.
    pub moves: bool,
}

/// A load under way.
pub struct Load<'a, S: Store + ?Sized> {
    store: &'a S,
    disk: Recorder<Memory>,
    random: Random,
    size: Size,
    files: BTreeSet<String>,
    directories: BTreeSet<String>,
    /// Removed, but still open.
    open: Vec<Opened<'a, S>>,
    /// What must be found.
    pub ledger: Ledger,
    /// What was done, with the position at its beginning: for the report of a failure.
    pub log: Vec<(usize, String)>,
    number: u64,
}

impl<'a, S: Store + ?Sized> Load<'a, S> {
    /// On an empty store over that disk.
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

    /// A path where there is nothing, of a name that may have been there before.
    fn fresh(&mut self, kind: char) -> Option<String> {
        let directory = self.directory();
        let path = match self.random.below(12) {
            // A directory of more than one block.
            0 => {
                self.number += 1;
                format!("{directory}/{kind}{:0>200}", self.number)
            }
            number => format!("{directory}/{kind}{number}"),
        };
        let deep = path.matches('/').count() > 4;
        (!deep && !self.files.contains(&path) && !self.directories.contains(&path)).then_some(path)
    }

    /// Bytes of which no two writes have the same.
    fn bytes(&mut self) -> Vec<u8> {
        let length = usize::try_from(1 + self.random.below(self.size.write)).expect("small");
        let mut random = self.random.split();
        (0..length).map(|_| u8::try_from(random.below(256)).expect("below 256")).collect()
    }

    /// One thing.
    ///
    /// # Errors
    /// What failed for another reason than want of room.
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
            // What ended in the middle for want of room did what it could.
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
        let what = format!("unlink {path}{}", if open.is_some() { ", open" } else { "" });
        // With another name left it is no removed file: what is written to it would be a change of
        // that one.
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
        // To a new name, or over one that is empty.
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
            return ("close what was removed".to_owned(), Ok(()));
        }
        let store = self.store;
        let result = store.sync_all();
        if result.is_ok() {
            self.ledger.sync_all(self.disk.position(), |path| paths::contents(store, path).ok());
        }
        (format!("sync all, ended at {}", self.disk.position()), result)
    }
}
