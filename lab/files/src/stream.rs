//! Sequential access to one large file.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use rustix::fs::{Advice, fadvise};

use super::aligned::Aligned;
use super::fileread;
use super::outcome::Outcome;
use super::tree::{BIG, BIG_BYTES, CACHED, CACHED_BYTES};

/// Size of a read or write.
const PART: usize = 1 << 20;
/// Name and contents of the written file, which is removed afterwards.
const WRITTEN: &str = "written";
const WRITTEN_BYTES: usize = 128 << 20;

fn told(path: &Path) -> impl Fn(std::io::Error) -> String + '_ {
    move |e| format!("{}: {e}", path.display())
}

/// Reads the file that is to be in the server's cache, bypassing the kernel's cache.
pub fn warm(root: &Path) -> Result<Outcome, String> {
    let path = root.join(CACHED);
    let file = fileread::open(&path)?;
    let mut part = Aligned::new(PART);
    let begun = Instant::now();
    for at in (0..CACHED_BYTES).step_by(PART) {
        file.read_exact_at(part.bytes(), at).map_err(told(&path))?;
    }
    Ok(Outcome::default().with("mb_s", CACHED_BYTES as f64 / 1e6 / begun.elapsed().as_secs_f64()))
}

/// Reads the big file through an empty page cache, in MB/s.
pub fn read(root: &Path) -> Result<Outcome, String> {
    let path = root.join(BIG);
    let mut file = File::open(&path).map_err(told(&path))?;
    fadvise(&file, 0, None, Advice::DontNeed).map_err(|e| format!("{}: {e}", path.display()))?;
    let (mut part, mut all) = (vec![0; PART], 0);
    let begun = Instant::now();
    loop {
        match file.read(&mut part).map_err(told(&path))? {
            0 => break,
            length => all += length as u64,
        }
    }
    let seconds = begun.elapsed().as_secs_f64();
    if all != BIG_BYTES {
        return Err(format!("{} has {all} bytes", path.display()));
    }
    Ok(Outcome::default().with("mb_s", all as f64 / 1e6 / seconds))
}

/// Writes a new file including fsync, in MB/s.
pub fn write(root: &Path) -> Result<Outcome, String> {
    let path = root.join(WRITTEN);
    let part = vec![0x5a; PART];
    let begun = Instant::now();
    let mut file = File::create(&path).map_err(told(&path))?;
    for _ in 0..WRITTEN_BYTES / PART {
        file.write_all(&part).map_err(told(&path))?;
    }
    file.sync_all().map_err(told(&path))?;
    let seconds = begun.elapsed().as_secs_f64();
    drop(file);
    fs::remove_file(&path).map_err(told(&path))?;
    Ok(Outcome::default().with("mb_s", WRITTEN_BYTES as f64 / 1e6 / seconds))
}
