//! Finds a directory with enough files, and lists its files.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;

const MOST_FILES: usize = 3_000;
const MOST_BYTES: u64 = 200 << 20;
/// Maximum size of a file, because a few large ones would dominate.
const LARGEST: u64 = 8 << 20;
/// Minimum number of files; with fewer, another directory is tried.
const ENOUGH: usize = 1_000;

pub struct File {
    pub path: PathBuf,
    pub bytes: u64,
}

/// The requested directory, or one that exists on every machine with a Rust toolchain; and its
/// regular files by name, within the limits above. Unreadable files and directories are skipped.
pub fn find(asked: Option<&Path>) -> Result<(PathBuf, Vec<File>), String> {
    if let Some(folder) = asked {
        let folder = folder.canonicalize().map_err(|e| format!("{}: {e}", folder.display()))?;
        let files = walk(&folder);
        return if files.is_empty() {
            Err(format!("{} has no file to hash", folder.display()))
        } else {
            Ok((folder, files))
        };
    }
    let mut best: Option<(PathBuf, Vec<File>)> = None;
    for folder in [Some(PathBuf::from("/usr/share/doc")), toolchain(), std::env::current_dir().ok()]
    {
        let Some(folder) = folder.and_then(|f| f.canonicalize().ok()) else { continue };
        let files = walk(&folder);
        if files.len() >= ENOUGH {
            return Ok((folder, files));
        }
        if best.as_ref().is_none_or(|(_, b)| b.len() < files.len()) {
            best = Some((folder, files));
        }
    }
    best.filter(|(_, files)| !files.is_empty())
        .ok_or_else(|| "no file to hash was found: use --dir".to_owned())
}

fn toolchain() -> Option<PathBuf> {
    let output = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    Some(PathBuf::from(String::from_utf8(output.stdout).ok()?.trim()))
}

fn walk(folder: &Path) -> Vec<File> {
    let mut files = Vec::new();
    let mut bytes = 0;
    // Sorted by name, so that the limits select the same files every time.
    let mut open = vec![folder.to_owned()];
    while let Some(path) = open.pop() {
        let Ok(about) = path.symlink_metadata() else { continue };
        if about.is_dir() {
            let entries = path.read_dir().into_iter().flatten().flatten();
            let mut below: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
            below.sort_unstable_by(|a, b| b.cmp(a));
            open.extend(below);
        } else if about.is_file()
            && about.len() <= LARGEST
            && is_plain(&path)
            && std::fs::File::open(&path).is_ok()
        {
            if files.len() == MOST_FILES || bytes + about.len() > MOST_BYTES {
                break;
            }
            bytes += about.len();
            files.push(File { path, bytes: about.len() });
        }
    }
    files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    files
}

/// Returns whether `sha256sum` prints the name unchanged: it escapes some characters.
fn is_plain(path: &Path) -> bool {
    !path.as_os_str().as_bytes().iter().any(|b| matches!(b, b'\\' | b'\n' | b'\r'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_sorted_by_name() {
        let (folder, files) = find(Some(Path::new(env!("CARGO_MANIFEST_DIR")))).unwrap();
        assert!(
            folder.is_absolute()
                && files.iter().any(|f| f.path.ends_with("src/main.rs") && f.bytes > 0)
        );
        assert!(files.is_sorted_by(|a, b| a.path < b.path));
    }

    #[test]
    fn missing_folder_is_named() {
        assert!(
            find(Some(Path::new("/nonexistent"))).is_err_and(|why| why.contains("/nonexistent"))
        );
    }

    #[test]
    fn names_that_need_escapes_are_left_out() {
        assert!(
            is_plain(Path::new("/a b"))
                && !is_plain(Path::new("/a\\b"))
                && !is_plain(Path::new("/a\nb"))
        );
    }
}
