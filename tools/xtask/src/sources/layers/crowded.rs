//! Folders named `src` with so many files that a reader finds no rooms in them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::modules::Target;
use crate::Failure;

/// Largest number of files directly in a `src`.
const MOST: usize = 12;

/// Describes each `src` of the targets that has too many files.
pub fn crowded(root: &Path, targets: &[Target]) -> Result<String, Failure> {
    let folders: BTreeSet<&Path> =
        targets.iter().filter_map(|target| target.root.parent()).collect();
    let mut findings = String::new();
    for folder in folders.into_iter().filter(|folder| folder.ends_with("src")) {
        let place = root.join(folder);
        let entries = fs::read_dir(&place).map_err(|e| format!("{}: {e}", place.display()))?;
        let files = entries.flatten().filter(|entry| entry.path().is_file()).count();
        if files > MOST {
            findings.push_str(&format!(
                "{}: {files} files, {MOST} allowed: gather some in a folder\n",
                folder.display()
            ));
        }
    }
    Ok(findings)
}
