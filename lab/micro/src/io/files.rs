//! `files`: 16 microprocesses read 4 KB blocks at random offsets, from memory and from the disk; 16
//! index a tree of 20,000 files.

use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use kumihimo::fs::{self, OpenOptions};
use kumihimo::thread;
use kumihimo_bench_kit::files::{BLOCK, Block, O_DIRECT, Offsets, Place, READERS, index};
use kumihimo_bench_kit::{Request, sample};

pub fn files(request: &Request) {
    let place = Place::new();
    if request.wants("cached") {
        reads(&place.large(), "cached", request.value("count", 100_000));
    }
    if request.wants("uncached") {
        reads(&place.large(), "uncached", request.value("count", 2_000));
    }
    if request.wants("tree") {
        tree(place.tree());
    }
}

fn reads(path: &Path, part: &str, count: usize) {
    let mut options = OpenOptions::new();
    options.read(true).custom_flags(if part == "cached" { 0 } else { O_DIRECT });
    let file = Arc::new(options.open(path).expect("a file system with direct reads"));
    let start = Instant::now();
    thread::scope(|s| {
        for reader in 0..READERS {
            let file = file.clone();
            s.spawn(move || {
                let mut block = Box::new(Block([0; BLOCK]));
                for offset in Offsets::of(reader).take(count) {
                    file.read_exact_at(&mut block.0, offset).expect("a block");
                }
            });
        }
    });
    sample(
        "reads",
        (count * READERS) as f64 / start.elapsed().as_secs_f64(),
        "1/s",
        &format!("part={part}"),
    );
}

fn tree(folders: Vec<PathBuf>) {
    let (folders, next) = (Arc::new(folders), Arc::new(AtomicUsize::new(0)));
    let (files, sum) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let start = Instant::now();
    thread::scope(|s| {
        for _ in 0..READERS {
            let (folders, next, files, sum) =
                (folders.clone(), next.clone(), files.clone(), sum.clone());
            s.spawn(move || {
                while let Some(folder) = folders.get(next.fetch_add(1, Ordering::Relaxed)) {
                    for entry in fs::read_dir(folder).expect("a folder") {
                        let entry = entry.expect("an entry");
                        assert!(entry.file_type().expect("a type").is_file());
                        let text = fs::read(entry.path()).expect("a file");
                        sum.fetch_add(index(&text), Ordering::Relaxed);
                        files.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let took = start.elapsed().as_secs_f64();
    let keys = format!(
        "part=tree files:={} sum:={}",
        files.load(Ordering::Relaxed),
        sum.load(Ordering::Relaxed)
    );
    sample("tree", took, "s", &keys);
}
