//! `files` on kernel threads, and reads by fio with io_uring at the same queue depth.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use kumihimo_bench_kit::files::{BLOCK, Block, O_DIRECT, Offsets, Place, READERS, SIZE, index};
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
    if request.get("part") == Some("fio") {
        fio(&place.large());
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
    sample("reads", (count * READERS) as f64 / start.elapsed().as_secs_f64(), "1/s", &format!("part={part}"));
}

fn tree(folders: Vec<PathBuf>) {
    let (folders, next) = (Arc::new(folders), Arc::new(AtomicUsize::new(0)));
    let (files, sum) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicU64::new(0)));
    let start = Instant::now();
    thread::scope(|s| {
        for _ in 0..READERS {
            let (folders, next, files, sum) = (folders.clone(), next.clone(), files.clone(), sum.clone());
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
    let keys = format!("part=tree files:={} sum:={}", files.load(Ordering::Relaxed), sum.load(Ordering::Relaxed));
    sample("tree", took, "s", &keys);
}

/// Runs one fio process with the same number of outstanding reads. Direct reads only: cached reads
/// would take a system call each.
fn fio(path: &Path) {
    let mut command = Command::new("fio");
    command.args(["--name=reads", "--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring", "--minimal"]);
    command.args([format!("--filename={}", path.display()), format!("--size={SIZE}"), format!("--iodepth={READERS}")]);
    let output = match command.args(["--time_based", "--runtime=2"]).output() {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout).into_owned(),
        Ok(output) => refused(String::from_utf8_lossy(&output.stderr).lines().next().unwrap_or("it failed")),
        Err(e) => refused(&format!("{e} (package fio)")),
    };
    // fio(1), "terse output": the eighth field of version 3 is read operations a second.
    let reads =
        output.lines().find(|line| line.starts_with("3;")).and_then(|line| line.split(';').nth(7)?.parse().ok());
    let Some(reads) = reads else { refused("its output has an unknown format") };
    sample("reads", reads, "1/s", "part=uncached runtime=fio");
}

fn refused(why: &str) -> ! {
    eprintln!("refused: fio: {why}");
    std::process::exit(1)
}
