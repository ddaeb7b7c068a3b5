//! Makes images with `mke2fs` and checks them with `e2fsck`.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A temporary file, removed when dropped. In memory if possible, because images are written
/// completely and soon deleted.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// Creates an empty file.
    ///
    /// # Errors
    /// As creat(2).
    pub fn new() -> io::Result<Scratch> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let directory = if Path::new("/dev/shm").is_dir() {
            PathBuf::from("/dev/shm")
        } else {
            std::env::temp_dir()
        };
        let name = format!("kumihimo-proof-{}-{}", std::process::id(), NEXT.fetch_add(1, Relaxed));
        let path = directory.join(name);
        File::create_new(&path)?;
        Ok(Scratch(path))
    }

    /// Path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Writes the image to the file. Zeros become holes.
    ///
    /// # Errors
    /// As pwrite(2).
    pub fn fill(&self, image: &[u8]) -> io::Result<()> {
        const PIECE: usize = 4096;
        let file = File::options().write(true).truncate(true).open(&self.0)?;
        file.set_len(image.len() as u64)?;
        for (number, piece) in image.chunks(PIECE).enumerate() {
            if piece != &[0; PIECE][..piece.len()] {
                file.write_all_at(piece, (number * PIECE) as u64)?;
            }
        }
        Ok(())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Returns whether the programs are installed. Reports `test` as skipped otherwise.
#[must_use]
pub fn programs(test: &str) -> bool {
    let here = ["mke2fs", "e2fsck"].iter().all(|name| program(name).arg("-V").output().is_ok());
    if !here {
        kumihimo_tests::skip(test, "mke2fs and e2fsck are not installed (e2fsprogs)");
    }
    here
}

/// Debian installs the programs in `/usr/sbin`, which is not in the `PATH` of ordinary users.
fn program(name: &str) -> Command {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.env("PATH", format!("{path}:/usr/sbin:/sbin")).env("LC_ALL", "C").stdin(Stdio::null());
    command
}

/// An image of `size` bytes, made by `mke2fs -t ext2` with these arguments. The result is
/// reproducible, because the hash seed and the UUID are fixed.
///
/// # Panics
/// With the output of `mke2fs` if it fails.
#[must_use]
pub fn make(size: u64, arguments: &[&str]) -> Vec<u8> {
    std::fs::read(make_sparse(size, arguments).path()).expect("the image")
}

/// An image as [`make`] returns it, in a sparse file.
///
/// # Panics
/// With the output of `mke2fs` if it fails.
#[must_use]
pub fn make_sparse(size: u64, arguments: &[&str]) -> Scratch {
    let scratch = Scratch::new().expect("a scratch file");
    File::options()
        .write(true)
        .open(scratch.path())
        .and_then(|file| file.set_len(size))
        .expect("the image's size");
    let identity = "5ca1ab1e-0000-4000-8000-00000000000a";
    let hash = format!("hash_seed={identity}");
    let output = program("mke2fs")
        .args(["-q", "-F", "-t", "ext2", "-U", identity, "-E", &hash])
        .args(arguments)
        .arg(scratch.path())
        .output()
        .expect("mke2fs runs");
    assert!(output.status.success(), "mke2fs {arguments:?}: {}", said(&output));
    scratch
}

fn said(output: &Output) -> String {
    [output.stdout.as_slice(), &output.stderr]
        .concat()
        .iter()
        .map(|byte| char::from(*byte))
        .collect()
}

/// Runs `e2fsck -fn`, which succeeds if the image is clean.
///
/// # Errors
/// Output of `e2fsck`.
///
/// # Panics
/// If `e2fsck` cannot be started.
pub fn clean(image: &[u8]) -> Result<(), String> {
    let scratch = Scratch::new().expect("a scratch file");
    scratch.fill(image).expect("a scratch image");
    let output = program("e2fsck").arg("-fn").arg(scratch.path()).output().expect("e2fsck runs");
    if output.status.code() == Some(0) {
        Ok(())
    } else {
        Err(format!("e2fsck -fn: {}", said(&output)))
    }
}

/// A repaired image.
#[derive(Debug)]
pub struct Repaired {
    /// The image, now clean.
    pub image: Vec<u8>,
    /// True if e2fsck needed an answer because a directory was in two directories at the cut. ext2
    /// cannot avoid this state by ordering its writes, because the two entries are in two blocks.
    pub asked: bool,
}

/// Runs `e2fsck -p`, which must repair the image without questions, except for [`Repaired::asked`].
/// The result must be clean.
///
/// # Errors
/// Output of `e2fsck`.
///
/// # Panics
/// If `e2fsck` cannot be started.
pub fn repair(image: &[u8]) -> Result<Repaired, String> {
    let scratch = Scratch::new().expect("a scratch file");
    scratch.fill(image).expect("a scratch image");
    let run =
        |how: &str| program("e2fsck").arg(how).arg(scratch.path()).output().expect("e2fsck runs");
    let output = run("-fp");
    let first = said(&output);
    let moved = [" is a link to directory ", "'..' in "].iter().any(|what| first.contains(what));
    let asked = output.status.code() == Some(4) && moved;
    if asked {
        run("-fy");
    } else if !matches!(output.status.code(), Some(0 | 1)) {
        return Err(format!("e2fsck -fp: {}: {first}", output.status));
    }
    let output = run("-fn");
    if output.status.code() != Some(0) {
        return Err(format!("e2fsck -fp said {first:?}, then e2fsck -fn: {}", said(&output)));
    }
    Ok(Repaired { image: std::fs::read(scratch.path()).expect("the image"), asked })
}

/// The same image with an index in each directory of several blocks, made by `e2fsck -D`.
///
/// # Panics
/// If `e2fsck` fails.
#[must_use]
pub fn indexed(image: &[u8]) -> Vec<u8> {
    let scratch = Scratch::new().expect("a scratch file");
    scratch.fill(image).expect("a scratch image");
    let output =
        program("e2fsck").args(["-fyD"]).arg(scratch.path()).output().expect("e2fsck runs");
    assert!(matches!(output.status.code(), Some(0 | 1)), "e2fsck -fyD: {}", said(&output));
    std::fs::read(scratch.path()).expect("the image")
}

/// Saves a faulty image for inspection. Returns its path.
///
/// # Panics
/// If the image cannot be written.
#[must_use]
pub fn keep(name: &str, image: &[u8]) -> PathBuf {
    let path =
        std::env::temp_dir().join(format!("kumihimo-proof-{name}-{}.img", std::process::id()));
    // The image that this process has kept before under this name.
    let _ = std::fs::remove_file(&path);
    File::create_new(&path)
        .and_then(|mut file| file.write_all(image))
        .expect("an image in the temporary directory");
    path
}
