//! Files that a setting or an option names: traces and logs. They may lie in a folder that other
//! users can write to (`/tmp`), so another user may have put something there before.
//!
//! - A new file is created with `O_EXCL`.
//! - An existing file is opened only if it belongs to the user and has no other name. Its type and
//!   owner are checked before it is opened, because opening another user's pipe would block, and
//!   once more afterwards.
//! - A symbolic link is followed only if it belongs to the user or to root.
//! - Names of further files beside it are random.

use std::ffi::{CString, OsString};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Flags of every open: no link as the last component, no terminal that controls the process.
const FLAGS: i32 = libc::O_NOFOLLOW | libc::O_NOCTTY;
/// Largest number of symbolic links on the way; the kernel's own limit.
const MOST_LINKS: usize = 40;
/// Attempts to find a free random name.
const ATTEMPTS: usize = 8;

fn refused(path: &Path, why: &str) -> io::Error {
    let text = format!("{} {why} and is not written to; use another path", path.display());
    io::Error::new(io::ErrorKind::PermissionDenied, text)
}

fn me() -> u32 {
    // SAFETY: no arguments; cannot fail.
    unsafe { libc::geteuid() }
}

/// Opens the file at `path` with `options`, which include writing or appending, or creates it. Does
/// not truncate it. Blocks on a named pipe until it has a reader.
///
/// # Errors
/// Returns `PermissionDenied` if the file is another user's, has further names (hard links), or is
/// reached through another user's symbolic link. Otherwise the kernel's error.
pub fn open(path: &Path, options: &OpenOptions) -> io::Result<File> {
    let Some(path) = &resolved(path)? else {
        // A descriptor of this process, which is open for writing already.
        return options.open(path);
    };
    let mut options = options.clone();
    options.custom_flags(FLAGS);
    match options.clone().create_new(true).open(path) {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
        created => return created,
    }
    let there = fs::symlink_metadata(path)?;
    check(path, &there)?;
    let file = options.open(path)?;
    let opened = file.metadata()?;
    if (opened.dev(), opened.ino()) != (there.dev(), there.ino()) {
        return Err(refused(path, "was replaced while it was opened"));
    }
    check(path, &opened)?;
    Ok(file)
}

fn check(path: &Path, file: &fs::Metadata) -> io::Result<()> {
    let (owner, me) = (file.uid(), me());
    // Devices and system-wide pipes belong to root.
    let may_be_roots = !file.is_file() && !file.is_symlink();
    if owner != me && !(may_be_roots && owner == 0) {
        return Err(refused(path, &format!("belongs to user {owner} and not to user {me}")));
    }
    if file.is_symlink() {
        return Err(refused(path, "has become a symbolic link"));
    }
    if file.is_file() && file.nlink() > 1 {
        return Err(refused(path, "has further names (hard links)"));
    }
    Ok(())
}

/// Follows the symbolic links at `path`. `None` if they lead to a descriptor of a process
/// (`/dev/stdout`), which has no path.
fn resolved(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        let Ok(there) = fs::symlink_metadata(&path) else { return Ok(Some(path)) };
        if !there.is_symlink() {
            return Ok(Some(path));
        }
        let (owner, me) = (there.uid(), me());
        if owner != me && owner != 0 {
            let why = format!("is a symbolic link of user {owner}");
            return Err(refused(&path, &why));
        }
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        let above = above.unwrap_or(Path::new("."));
        if is_proc(above) {
            return Ok(None);
        }
        path = above.join(fs::read_link(&path)?);
    }
    Err(io::Error::from_raw_os_error(libc::ELOOP))
}

/// Returns whether the folder is one of procfs, whose links lead to open files.
fn is_proc(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else { return false };
    // SAFETY: a terminated string, and a struct for which all zeroes are valid.
    unsafe {
        let mut system: libc::statfs = std::mem::zeroed();
        libc::statfs(path.as_ptr(), &raw mut system) == 0
            && system.f_type as u64 == libc::PROC_SUPER_MAGIC as u64
    }
}

/// Returns whether `path` leads to something that is written in place: a pipe or a device.
#[must_use]
pub fn is_stream(path: &Path) -> bool {
    path.metadata().is_ok_and(|there| !there.is_file())
}

/// Creates a file with a new, random name that begins with `start` and ends with `end`, for the
/// own user only.
///
/// # Errors
/// Returns the kernel's error.
pub fn create_beside(start: &Path, end: &str) -> io::Result<(File, PathBuf)> {
    let mut last = None;
    for _ in 0..ATTEMPTS {
        let mut random = [0; 8];
        // SAFETY: a live buffer of this length.
        if unsafe { libc::getrandom(random.as_mut_ptr().cast(), random.len(), 0) } != 8 {
            return Err(io::Error::last_os_error());
        }
        let mut name = start.as_os_str().to_owned();
        name.push(format!(".{:016x}{end}", u64::from_ne_bytes(random)));
        let path = PathBuf::from(name);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        match options.custom_flags(FLAGS).open(&path) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => last = Some(e),
            created => return Ok((created?, path)),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::from(io::ErrorKind::AlreadyExists)))
}

/// Opens the latest file for reading that [`create_beside`] created for this user with `start` and
/// `end`. `None` if there is none.
#[must_use]
pub fn open_beside(start: &Path, end: &str) -> Option<(File, PathBuf)> {
    let (folder, name) = (start.parent()?, start.file_name()?);
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    let is_random =
        |middle: &str| middle.len() == 16 && middle.bytes().all(|b| b.is_ascii_hexdigit());
    let mut begin = OsString::from(name);
    begin.push(".");
    let found = fs::read_dir(folder).ok()?.flatten().filter(|entry| {
        let name = entry.file_name();
        let rest = name.as_encoded_bytes().strip_prefix(begin.as_encoded_bytes());
        let middle = rest.and_then(|rest| rest.strip_suffix(end.as_bytes()));
        middle.and_then(|middle| str::from_utf8(middle).ok()).is_some_and(is_random)
    });
    let opened = found.filter_map(|entry| {
        let path = entry.path();
        let flags = FLAGS | libc::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(&path).ok()?;
        let there = file.metadata().ok()?;
        (there.is_file() && there.uid() == me())
            .then(|| ((there.mtime(), there.mtime_nsec()), file, path))
    });
    opened.max_by_key(|(written, ..)| *written).map(|(_, file, path)| (file, path))
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::fs::symlink;

    use super::*;

    fn open(path: &Path) -> io::Result<File> {
        super::open(path, OpenOptions::new().write(true))
    }

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path =
                std::env::temp_dir().join(format!("kumi-output-{name}-{}", std::process::id()));
            fs::create_dir(&path).expect("a folder");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn own_files_links_and_descriptors_are_written() {
        let folder = Folder::new("own");
        let (file, link) = (folder.0.join("file"), folder.0.join("link"));
        open(&file).expect("created").write_all(b"one").expect("written");
        symlink("file", &link).expect("a link");
        open(&link).expect("the user's own link").write_all(b"tw").expect("written");
        assert_eq!(fs::read(&file).expect("there"), b"twe");
        symlink("later", folder.0.join("dangling")).expect("a link");
        open(&folder.0.join("dangling")).expect("created");
        assert!(folder.0.join("later").exists());
        open(Path::new("/dev/null")).expect("a device of root").write_all(b"x").expect("written");
        let standard = File::create(folder.0.join("standard")).expect("a file");
        let magic = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&standard));
        open(Path::new(&magic)).expect("a descriptor").write_all(b"x").expect("written");
        assert_eq!(standard.metadata().expect("open").len(), 1);
    }

    #[test]
    fn file_with_further_names_is_refused() {
        let folder = Folder::new("names");
        let (mine, planted) = (folder.0.join("mine"), folder.0.join("planted"));
        fs::write(&mine, "kept").expect("written");
        fs::hard_link(&mine, &planted).expect("a second name");
        let error = open(&planted).expect_err("it is refused").to_string();
        assert!(error.contains("hard links"), "{error}");
        assert_eq!(fs::read(&mine).expect("there"), b"kept");
    }

    #[test]
    fn circle_of_links_ends() {
        let folder = Folder::new("circle");
        symlink("b", folder.0.join("a")).expect("a link");
        symlink("a", folder.0.join("b")).expect("a link");
        open(&folder.0.join("a")).expect_err("a circle");
    }

    #[test]
    fn random_names_differ_and_are_found() {
        let folder = Folder::new("random");
        let start = folder.0.join("out.12");
        assert!(open_beside(&start, ".spool").is_none());
        let (_, first) = create_beside(&start, ".spool").expect("a file");
        let (_, second) = create_beside(&start, ".spool").expect("a file");
        assert_ne!(first, second);
        fs::remove_file(&first).expect("there");
        // Names of other forms, and links, are not taken for it.
        fs::write(folder.0.join("out.12.spool"), "planted").expect("written");
        fs::write(folder.0.join("out.12.0123.spool"), "planted").expect("written");
        symlink("/dev/null", folder.0.join("out.12.ffffffffffffffff.spool")).expect("a link");
        assert_eq!(open_beside(&start, ".spool").expect("found").1, second);
    }
}
