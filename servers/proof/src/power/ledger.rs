//! Contents that must be found after a power cut, depending on its position: the state at the last
//! sync, weakened by every operation begun since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Possible states of one name of a file after a power cut. One of them must be found.
#[derive(Clone, Debug, Default)]
struct Known {
    /// The file has one of these names.
    names: Vec<String>,
    /// The file has one of these names, because a directory above it was renamed. fsync(2) of a
    /// file does not cover such a rename.
    before: Vec<String>,
    /// The name may have been removed.
    gone: bool,
    /// One of these files may have replaced it under its name.
    replaced_by: Vec<usize>,
}

/// Required contents of a file; `None`: any contents, because the file was being changed.
type Allowed = Option<Arc<[u8]>>;

#[derive(Debug, Default)]
struct File {
    history: Vec<(usize, Allowed)>,
}

#[derive(Debug)]
struct Name {
    file: usize,
    /// Current path; `None` after the name was removed.
    path: Option<String>,
    /// Earlier paths, before directories above the file were renamed, since the last sync of
    /// everything.
    before: Vec<String>,
    /// Possible states, each from a position in the record on.
    history: Vec<(usize, Option<Known>)>,
}

/// All files that have existed. Positions refer to the record of the disk: an operation that begins
/// at a position may be partly on the disk after it. An operation that has ended at a position is
/// on the disk completely.
#[derive(Debug, Default)]
pub struct Ledger {
    files: Vec<File>,
    names: Vec<Name>,
    /// Paths and whether each certainly does not exist, from a position on.
    absent: BTreeMap<String, Vec<(usize, bool)>>,
    /// Renames of directories, from and to, since the last sync of everything.
    moves: Vec<(String, String)>,
}

fn at<T>(history: &[(usize, T)], position: usize) -> Option<&T> {
    history.iter().rev().find(|(since, _)| *since <= position).map(|(_, what)| what)
}

impl Ledger {
    /// Adds a new file without guarantees.
    pub fn make(&mut self, position: usize, path: &str) {
        self.files.push(File::default());
        self.link(position, self.files.len() - 1, path);
    }

    /// Adds another name of the file at `path`.
    pub fn link_path(&mut self, position: usize, path: &str, new: &str) {
        if let Some(file) = self.file(path) {
            self.link(position, file, new);
        }
    }

    fn link(&mut self, position: usize, file: usize, path: &str) {
        self.appears(position, path);
        let before = self.former(path);
        self.names.push(Name { file, path: Some(path.to_owned()), before, history: Vec::new() });
    }

    /// The paths of an entry at `path` if renames of the directories above it are not on the disk.
    fn former(&self, path: &str) -> Vec<String> {
        let mut all = vec![path.to_owned()];
        for (from, to) in self.moves.iter().rev() {
            let moved = |path: &String| {
                let rest = path.strip_prefix(to)?.strip_prefix('/')?;
                Some(format!("{from}/{rest}"))
            };
            let moved: Vec<String> = all.iter().filter_map(moved).collect();
            all.extend(moved);
        }
        all.split_off(1)
    }

    fn appears(&mut self, position: usize, path: &str) {
        for path in self.former(path).iter().map(String::as_str).chain([path]) {
            if let Some(history) = self.absent.get_mut(path) {
                history.push((position, false));
            }
        }
    }

    fn file(&self, path: &str) -> Option<usize> {
        self.names.iter().find(|name| name.path.as_deref() == Some(path)).map(|name| name.file)
    }

    /// Begins a change of a file's contents.
    pub fn write(&mut self, position: usize, path: &str) {
        if let Some(file) = self.file(path) {
            self.files[file].history.push((position, None));
        }
    }

    /// Begins to remove a name.
    pub fn unlink(&mut self, position: usize, path: &str) {
        self.leaves(position, path);
        for name in self.names.iter_mut().filter(|name| name.path.as_deref() == Some(path)) {
            name.path = None;
            name.loosen(position, |known| known.gone = true);
        }
    }

    /// Weakens the guarantees of other files that may still be at `path`.
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

    /// Begins to rename a file, possibly over another one.
    pub fn rename(&mut self, position: usize, from: &str, to: &str) {
        let Some(file) = self.file(from) else { return };
        // Both names refer to the same file: rename(2) does nothing.
        if self.file(to) == Some(file) {
            return;
        }
        self.appears(position, to);
        self.leaves(position, from);
        for name in &mut self.names {
            let there = name.path.as_deref() == Some(to);
            // Also a file that was replaced there earlier, where the replacement may not be on the
            // disk.
            let was = name.path.is_none()
                && name.known().is_some_and(|known| known.places().any(|name| name == to));
            if there || was {
                name.path = None;
                name.loosen(position, |known| known.replaced_by.push(file));
            }
        }
        let before = self.former(to);
        for name in self.names.iter_mut().filter(|name| name.path.as_deref() == Some(from)) {
            name.moved(position, to, &before);
        }
    }

    /// Begins to rename a directory with its contents.
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
                // Former names move with the directory as well, as long as their removal or rename
                // is not on the disk.
                let elsewhere: Vec<String> =
                    known.places().filter_map(|path| moved(path)).collect();
                if let Some(new) = new {
                    known.before.append(&mut known.names);
                    known.names.push(new);
                }
                known.before.extend(elsewhere);
            });
        }
        self.moves.push((from.to_owned(), to.to_owned()));
        for (old, new) in appear {
            self.appears(position, &new);
            self.absent.entry(old).or_default();
        }
        // Paths in either directory are no longer certainly absent: an entry created in one may be
        // found in the other.
        let there = format!("{to}/");
        let uncertain = |path: &&String| path.starts_with(&inside) || path.starts_with(&there);
        let paths: Vec<String> = self.absent.keys().filter(uncertain).cloned().collect();
        paths.iter().for_each(|path| self.appears(position, path));
    }

    /// Records that a file was synced with these contents.
    pub fn sync(&mut self, position: usize, path: &str, contents: &[u8]) {
        let Some(file) = self.file(path) else { return };
        self.files[file].history.push((position, Some(contents.into())));
        // fsync(2) guarantees none of several names.
        let names = self.names.iter_mut().filter(|name| name.file == file && name.path.is_some());
        let mut names: Vec<&mut Name> = names.collect();
        if let [name] = names.as_mut_slice() {
            name.settle_below(position);
        }
    }

    /// Records that a directory was synced: its names are durable, the contents of the files are
    /// not.
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

    /// Records that everything was synced. `contents` returns a file's contents, or `None` if the
    /// file cannot be read.
    pub fn sync_all(&mut self, position: usize, contents: impl Fn(&str) -> Option<Vec<u8>>) {
        self.moves.clear();
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

    /// Checks the contents after a cut at `position`. `read` returns a file's contents, or `None`
    /// if the file does not exist.
    ///
    /// # Errors
    /// If files are missing or have wrong contents.
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
                    found.push(format!("{path} is missing"));
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
                    "{path} has {} bytes, which differ from the synced contents ({lengths:?} bytes, first differing {differs:?})",
                    contents.len()
                ));
            }
            if !found.is_empty() {
                return Err(found.join("; "));
            }
        }
        for (path, history) in &self.absent {
            if at(history, position) == Some(&true) && read(path)?.is_some() {
                return Err(format!("{path} exists, although its removal was synced"));
            }
        }
        Ok(())
    }

    /// As [`check`](Ledger::check), but if a directory may be at either of two paths: the required
    /// contents may be under any path. `contents` are those of all files.
    ///
    /// # Errors
    /// If files are missing.
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
                return Err(format!("the synced contents of {:?} are missing", known.names));
            }
        }
        Ok(())
    }

    /// Number of names with guarantees at `position`.
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

    /// The name was changed to `to`, which may be at one of the paths `before` as well.
    fn moved(&mut self, position: usize, to: &str, before: &[String]) {
        self.path = Some(to.to_owned());
        self.before = before.to_vec();
        self.loosen(position, |known| {
            known.names.push(to.to_owned());
            known.before.extend_from_slice(before);
        });
    }

    /// The name's position in its directory is durable; the directory itself may be at another
    /// path.
    fn settle_below(&mut self, position: usize) {
        let before = self.before.clone();
        self.settle(position);
        self.loosen(position, |known| known.before = before);
    }

    /// The name is durable at its current path.
    fn settle(&mut self, position: usize) {
        let known = self.path.clone().map(|path| Known { names: vec![path], ..Known::default() });
        self.history.push((position, known));
    }
}

#[cfg(test)]
mod tests;
