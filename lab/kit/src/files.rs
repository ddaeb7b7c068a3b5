//! Files of the benchmark `files`: one large file for random reads, and a tree of small files.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Size of a read.
pub const BLOCK: usize = 4096;
/// Number of concurrent readers and of concurrent indexers.
pub const READERS: usize = 16;
/// Size of the large file.
pub const SIZE: u64 = 256 << 20;
/// Bypasses the cache (open(2)): every read accesses the disk. Value for x86-64 from
/// <asm-generic/fcntl.h>.
pub const O_DIRECT: i32 = 0o40_000;

const FOLDERS: usize = 200;
const FILES: usize = 100;

/// A buffer for direct reads.
#[repr(align(4096))]
pub struct Block(pub [u8; BLOCK]);

/// Offsets of reads in the large file, the same for all contenders.
#[derive(Clone, Debug)]
pub struct Offsets(u64);

impl Offsets {
    /// Offsets of one reader.
    #[must_use]
    pub fn of(reader: usize) -> Offsets {
        Offsets(0x9e37_79b9_7f4a_7c15 ^ (reader as u64 + 1) << 32)
    }
}

impl Iterator for Offsets {
    type Item = u64;

    fn next(&mut self) -> Option<u64> {
        // xorshift64 (Marsaglia 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        Some(self.0 % (SIZE / BLOCK as u64) * BLOCK as u64)
    }
}

/// A temporary directory, removed when dropped.
#[derive(Debug)]
pub struct Place(PathBuf);

impl Place {
    /// Creates the directory below the directory for temporary files, which may or may not be on a
    /// disk.
    ///
    /// # Panics
    /// If the directory cannot be created.
    #[must_use]
    pub fn new() -> Place {
        let path =
            std::env::temp_dir().join(format!("kumihimo-bench-files-{}", std::process::id()));
        fs::create_dir(&path).expect("a directory");
        Place(path)
    }

    /// Creates the large file, on the disk and in the page cache.
    ///
    /// # Panics
    /// If there is not enough space.
    #[must_use]
    pub fn large(&self) -> PathBuf {
        let path = self.0.join("large");
        let mut file = fs::File::create(&path).expect("a file");
        let part: Vec<u8> = (0..1u32 << 20).map(|n| (n >> 12) as u8).collect();
        (0..SIZE >> 20).for_each(|_| file.write_all(&part).expect("room on the disk"));
        file.sync_all().expect("on the disk");
        path
    }

    /// Creates 20,000 files of 200 to 2,000 bytes in 200 directories. Returns the directories.
    ///
    /// # Panics
    /// If there is not enough space.
    #[must_use]
    pub fn tree(&self) -> Vec<PathBuf> {
        let folder = |n: usize| {
            let folder = self.0.join(format!("folder{n}"));
            fs::create_dir(&folder).expect("a folder");
            for m in 0..FILES {
                let words = 30 + (n * 31 + m * 17) % 270;
                let text: String =
                    (0..words).map(|w| format!("word{} ", (w * w + m) % 997)).collect();
                fs::write(folder.join(format!("file{m}.txt")), text).expect("a file");
            }
            folder
        };
        (0..FOLDERS).map(folder).collect()
    }

    /// Path of the directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Default for Place {
    fn default() -> Place {
        Place::new()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Remaining files, if any, are in the directory for temporary files.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Indexes a text: its words, and a checksum over them that detects missing ones. Not inlined, so
/// that all contenders run the same code.
#[inline(never)]
#[must_use]
pub fn index(text: &[u8]) -> u64 {
    let words = text.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
    words
        .map(|word| {
            word.iter().fold(1469_5981_0393_4665_6037u64, |h, b| {
                (h ^ u64::from(*b)).wrapping_mul(1_099_511_628_211)
            }) >> 40
        })
        .sum()
}
