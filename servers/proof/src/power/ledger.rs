//! What must be found after a power cut, depending on when it came: what was synced, loosened by
//! what was begun since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What is known of one name of a file.
#[derive(Clone, Debug, Default)]
struct Known {
    /// It is under one of these.
    names: Vec<String>,
    /// Or one of these: a directory above it was renamed, of which fsync(2) of a file promises
    /// nothing.
    before: Vec<String>,
    /// Or it was removed.
    gone: bool,
    /// Or a file that came in its place is there: these files.
    replaced_by: Vec<usize>,
}

/// What a file may contain; `None`: anything, it was being changed.
type Allowed = Option<Arc<[u8]>>;

#[derive(Debug, Default)]
struct File {
    history: Vec<(usize, Allowed)>,
}

#[derive(Debug)]
struct Name {
    file: usize,
    /// Where it is now; `None` once it was removed.
    path: Option<String>,
    /// Where it was before directories above it were renamed, since all was synced.
    before: Vec<String>,
    /// From a position in the record on.
    history: Vec<(usize, Option<Known>)>,
}

/// All files that there ever were. Positions are those of the disk's record: what begins at one may
/// have reached the disk in part after it, and what has ended at one is on the disk.
#[derive(Debug, Default)]
pub struct Ledger {
    files: Vec<File>,
    names: Vec<Name>,
    /// Paths that certainly lead nowhere, or no longer.
    absent: BTreeMap<String, Vec<(usize, bool)>>,
}

fn at<T>(history: &[(usize, T)], position: usize) -> Option<&T> {
    history.iter().rev().find(|(since, _)| *since <= position).map(|(_, what)| what)
}

impl Ledger {
    /// A new file, of which nothing is certain yet.
    pub fn make(&mut self, position: usize, path: &str) {
        self.files.push(File::default());
        self.link(position, self.files.len() - 1, path);
    }

    /// Another name of the file that `path` leads to.
    pub fn link_path(&mut self, position: usize, path: &str, new: &str) {
        if let Some(file) = self.file(path) {
            self.link(position, file, new);
        }
    }

    fn link(&mut self, position: usize, file: usize, path: &str) {
        self.appears(position, path);
        self.names.push(Name {
            file,
            path: Some(path.to_owned()),
            before: Vec::new(),
            history: Vec::new(),
        });
    }

    fn appears(&mut self, position: usize, path: &str) {
        if let Some(history) = self.absent.get_mut(path) {
            history.push((position, false));
        }
    }

    fn file(&self, path: &str) -> Option<usize> {
        self.names.iter().find(|name| name.path.as_deref() == Some(path)).map(|name| name.file)
    }

    /// The contents of a file are being changed.
    pub fn write(&mut self, position: usize, path: &str) {
        if let Some(file) = self.file(path) {
            self.files[file].history.push((position, None));
        }
    }

    /// A name is being removed.
    pub fn unlink(&mut self, position: usize, path: &str) {
        self.leaves(position, path);
        for name in self.names.iter_mut().filter(|name| name.path.as_deref() == Some(path)) {
            name.path = None;
            name.loosen(position, |known| known.gone = true);
        }
    }

    /// Whatever else was said to be at that place is no longer certain to be.
    fn leaves(&mut self, position: usize, path: &str) {
        for name in &mut self.names {
            if name.path.is_none()
                && name.known().is_some_and(|known| known.places().any(|name| name == path))
            {
                name.loosen(position, |known| known.gone = true);
            }
        }
        self.absent.entry(path.to_owned()).or_default();
    }

    /// A file is being renamed, perhaps over another.
    pub fn rename(&mut self, position: usize, from: &str, to: &str) {
        let Some(file) = self.file(from) else { return };
        // Two names of one file: rename(2) does nothing.
        if self.file(to) == Some(file) {
            return;
        }
        self.appears(position, to);
        self.leaves(position, from);
        for name in &mut self.names {
            let there = name.path.as_deref() == Some(to);
            // Or what was replaced there before, but perhaps not on the disk.
            let was = name.path.is_none()
                && name.known().is_some_and(|known| known.places().any(|name| name == to));
            if there || was {
                name.path = None;
                name.loosen(position, |known| known.replaced_by.push(file));
            }
        }
        for name in self.names.iter_mut().filter(|name| name.path.as_deref() == Some(from)) {
            name.moved(position, to);
        }
    }

    /// A directory is being renamed, with all that is in it.
    pub fn rename_directory(&mut self, position: usize, from: &str, to: &str) {
        let inside = format!("{from}/");
        let moved = |path: &str| path.strip_prefix(&inside).map(|rest| format!("{to}/{rest}"));
        let mut appear = Vec::new();
        for name in &mut self.names {
            let new = name.path.as_deref().and_then(moved);
            if let Some((old, new)) = name.path.clone().zip(new.clone()) {
                name.path = Some(new.clone());
                name.before.push(old.clone());
                appear.push((old, new));
            }
            name.loosen(position, |known| {
                // Also where it was before, or was removed: as long as that is not on the disk it
                // moves with the directory.
                let elsewhere: Vec<String> =
                    known.places().filter_map(|path| moved(path)).collect();
                if let Some(new) = new {
                    known.before.append(&mut known.names);
                    known.names.push(new);
                }
                known.before.extend(elsewhere);
            });
        }
        for (old, new) in appear {
            self.appears(position, &new);
            self.absent.entry(old).or_default();
        }
        // What was certain to be nowhere in either is so no longer: what comes into the one may be
        // seen in the other.
        let there = format!("{to}/");
        let uncertain = |path: &&String| path.starts_with(&inside) || path.starts_with(&there);
        let paths: Vec<String> = self.absent.keys().filter(uncertain).cloned().collect();
        paths.iter().for_each(|path| self.appears(position, path));
    }

    /// A file was synced: its contents are these.
    pub fn sync(&mut self, position: usize, path: &str, contents: &[u8]) {
        let Some(file) = self.file(path) else { return };
        self.files[file].history.push((position, Some(contents.into())));
        // Of several names fsync(2) promises none.
        let names = self.names.iter_mut().filter(|name| name.file == file && name.path.is_some());
        let mut names: Vec<&mut Name> = names.collect();
        if let [name] = names.as_mut_slice() {
            name.settle_below(position);
        }
    }

    /// A directory was synced: the names in it, but not what they lead to.
    pub fn sync_directory(&mut self, position: usize, path: &str) {
        let inside =
            |name: &str| name.rsplit_once('/').map_or("", |(directory, _)| directory) == path;
        for name in &mut self.names {
            let all = name.known().is_some_and(|known| known.places().all(|name| inside(name)));
            if name.path.as_deref().map_or(all, inside) {
                name.settle_below(position);
            }
        }
    }

    /// Everything was synced. `contents` are a file's; `None`: they cannot be read.
    pub fn sync_all(&mut self, position: usize, contents: impl Fn(&str) -> Option<Vec<u8>>) {
        for name in &mut self.names {
            name.before.clear();
            name.settle(position);
            if let Some(path) = &name.path {
                self.files[name.file].history.push((position, contents(path).map(Into::into)));
            }
        }
        let present: Vec<&str> =
            self.names.iter().filter_map(|name| name.path.as_deref()).collect();
        for (path, history) in &mut self.absent {
            history.push((position, !present.contains(&path.as_str())));
        }
    }

    /// Checks what is there after a cut at `position`. `read` gives a file's contents, `None` if
    /// there is no such file.
    ///
    /// # Errors
    /// What is missing or wrong.
    pub fn check(
        &self,
        position: usize,
        read: impl Fn(&str) -> Result<Option<Vec<u8>>, String>,
    ) -> Result<(), String> {
        for name in &self.names {
            let Some(Some(known)) = at(&name.history, position) else { continue };
            if known.gone {
                continue;
            }
            let files: Vec<usize> =
                std::iter::once(name.file).chain(known.replaced_by.iter().copied()).collect();
            let allowed: Vec<&Allowed> = files
                .iter()
                .map(|file| at(&self.files[*file].history, position).unwrap_or(&None))
                .collect();
            let mut found = Vec::new();
            for path in known.places() {
                let Some(contents) = read(path)? else {
                    found.push(format!("{path} is not there"));
                    continue;
                };
                let fits = allowed
                    .iter()
                    .any(|allowed| allowed.as_ref().is_none_or(|allowed| **allowed == *contents));
                if fits {
                    found.clear();
                    break;
                }
                let lengths: Vec<_> = allowed
                    .iter()
                    .filter_map(|allowed| allowed.as_ref().map(|bytes| bytes.len()))
                    .collect();
                let differs = allowed.iter().filter_map(|allowed| allowed.as_ref());
                let differs: Vec<_> = differs
                    .map(|bytes| bytes.iter().zip(&contents).position(|(one, other)| one != other))
                    .collect();
                found.push(format!(
                    "{path} has {} bytes, others than those that were synced ({lengths:?} bytes, first differing {differs:?})",
                    contents.len()
                ));
            }
            if !found.is_empty() {
                return Err(found.join("; "));
            }
        }
        for (path, history) in &self.absent {
            if at(history, position) == Some(&true) && read(path)?.is_some() {
                return Err(format!("{path} is there, though its end was synced"));
            }
        }
        Ok(())
    }

    /// As [`check`](Ledger::check), where nobody knows at which of two places a directory was left:
    /// what has to be there is anywhere. `contents` are those of all files.
    ///
    /// # Errors
    /// What is missing.
    pub fn check_anywhere(
        &self,
        position: usize,
        contents: &BTreeSet<Vec<u8>>,
    ) -> Result<(), String> {
        for name in &self.names {
            let Some(Some(known)) = at(&name.history, position)
                .filter(|known| known.as_ref().is_some_and(|known| !known.gone))
            else {
                continue;
            };
            let there =
                std::iter::once(name.file).chain(known.replaced_by.iter().copied()).any(|file| {
                    at(&self.files[file].history, position)
                        .unwrap_or(&None)
                        .as_ref()
                        .is_none_or(|bytes| contents.contains(&**bytes))
                });
            if !there {
                return Err(format!("what {:?} had when it was synced is nowhere", known.names));
            }
        }
        Ok(())
    }

    /// How many names something is certain of at `position`.
    #[must_use]
    pub fn certain(&self, position: usize) -> usize {
        self.names
            .iter()
            .filter(|name| matches!(at(&name.history, position), Some(Some(known)) if !known.gone))
            .count()
    }
}

impl Known {
    fn places(&self) -> impl Iterator<Item = &String> {
        self.names.iter().chain(&self.before)
    }
}

impl Name {
    fn known(&self) -> Option<&Known> {
        self.history.last().and_then(|(_, known)| known.as_ref())
    }

    fn loosen(&mut self, position: usize, how: impl FnOnce(&mut Known)) {
        if let Some(known) = self.known() {
            let mut known = known.clone();
            how(&mut known);
            self.history.push((position, Some(known)));
        }
    }

    fn moved(&mut self, position: usize, to: &str) {
        self.path = Some(to.to_owned());
        self.loosen(position, |known| known.names.push(to.to_owned()));
    }

    /// It is where it is in its directory, which may be elsewhere.
    fn settle_below(&mut self, position: usize) {
        let before = self.before.clone();
        self.settle(position);
        self.loosen(position, |known| known.before = before);
    }

    /// It is where it is.
    fn settle(&mut self, position: usize) {
        let known = self.path.clone().map(|path| Known { names: vec![path], ..Known::default() });
        self.history.push((position, known));
    }
}

#[cfg(test)]
mod tests;
