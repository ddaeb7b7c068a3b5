//! Reads of files that were opened for direct ones: by the anchor, where there is io_uring, and
//! what they come to is what pread(2) says.
//!
//! One runtime at a time: the tests of this file take turns.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use kumihimo_io::fs::{File, OpenOptions};
use kumihimo_runtime::runtime::{AnchorMetrics, Builder, Runtime, metrics};
use kumihimo_runtime::{cancel, thread};

const BLOCK: usize = 4096;
const BLOCKS: u64 = 256;
/// Bytes behind the last whole block.
const REST: usize = 1000;

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn runtime() -> Builder {
    Runtime::builder().vps(2)
}

#[repr(align(4096))]
struct Block([u8; BLOCK]);

impl Block {
    fn new() -> Box<Block> {
        Box::new(Block([0xee; BLOCK]))
    }

    /// Whether it is the one with that number: each word is the number and its place.
    fn is(&self, number: u64) -> bool {
        let words = self.0.as_chunks::<8>().0;
        words
            .iter()
            .enumerate()
            .all(|(i, word)| u64::from_ne_bytes(*word) == number << 32 | i as u64)
    }
}

/// A file of numbered blocks and a rest, removed at the end.
struct Numbered(PathBuf);

impl Numbered {
    fn new(name: &str) -> Numbered {
        let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR"))
            .join(format!("direct-{name}-{}", std::process::id()));
        let mut file = std::fs::File::create(&path).unwrap();
        for number in 0..BLOCKS {
            let words = (0..BLOCK as u64 / 8).flat_map(|i| (number << 32 | i).to_ne_bytes());
            file.write_all(&words.collect::<Vec<_>>()).unwrap();
        }
        file.write_all(&[7; REST]).unwrap();
        file.sync_all().unwrap();
        Numbered(path)
    }

    /// `None`: said to be skipped.
    fn open(&self, test: &str) -> Option<File> {
        match OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&self.0) {
            Ok(file) => Some(file),
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::InvalidInput);
                let _ = writeln!(
                    std::io::stderr(),
                    "\n[skip] {test}: no direct reads in {}: {e}",
                    self.0.display()
                );
                None
            }
        }
    }
}

impl Drop for Numbered {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn anchor() -> AnchorMetrics {
    metrics().expect("a runtime runs").anchor
}

#[test]
fn concurrent_direct_reads_return_the_files_contents() {
    const EACH: u64 = 200;
    let _alone = alone();
    let numbered = Numbered::new("many");
    let Some(file) = numbered.open("concurrent_direct_reads_return_the_files_contents") else {
        return;
    };
    let file = Arc::new(file);
    runtime().build().unwrap().run(|| {
        let all: Vec<_> = (0..32u64)
            .map(|n| {
                let file = file.clone();
                thread::spawn(move || {
                    let mut block = Block::new();
                    for i in 0..EACH {
                        let number = (n * 131 + i * 57) % BLOCKS;
                        file.read_exact_at(&mut block.0, number * BLOCK as u64).unwrap();
                        assert!(block.is(number));
                    }
                })
            })
            .collect();
        all.into_iter().for_each(|one| one.join().unwrap());
        let seen = anchor();
        match &seen.refused {
            // But for the few made while it was being started.
            None if seen.runs => assert!(seen.reads > 32 * EACH / 2, "{seen:?}"),
            // A file system that takes no RWF_NOWAIT.
            None => assert_eq!(seen, AnchorMetrics::default()),
            Some(_) => assert!(!seen.runs && seen.reads == 0, "{seen:?}"),
        }
        if kumihimo_config::get().lab.uring == Some(false) {
            assert!(!seen.runs, "{seen:?}");
        }
    });
}

#[test]
fn ends_and_errors_are_those_of_pread() {
    let _alone = alone();
    let numbered = Numbered::new("ends");
    let Some(file) = numbered.open("ends_and_errors_are_those_of_pread") else { return };
    runtime().build().unwrap().run(|| {
        let mut block = Block::new();
        // The first look goes another way than those after it.
        for _ in 0..3 {
            assert_eq!(file.read_at(&mut block.0, BLOCKS * BLOCK as u64).unwrap(), REST);
            assert_eq!(block.0[..REST], [7; REST]);
            assert_eq!(file.read_at(&mut block.0, (BLOCKS + 1) * BLOCK as u64).unwrap(), 0);
            assert_eq!(file.read_at(&mut [], 0).unwrap(), 0);
            let error = file.read_at(&mut block.0, u64::MAX).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
            // Where the disk has larger sectors than one byte.
            let unaligned = file.read_at(&mut block.0[1..9], 3).map_err(|e| e.raw_os_error());
            let asked =
                std::fs::File::from(file.try_clone().unwrap()).read_at(&mut block.0[1..9], 3);
            assert_eq!(unaligned, asked.map_err(|e| e.raw_os_error()));
        }
    });
}

/// The kernel has the buffer until the read is over, even if the reader is given up.
#[test]
fn cancelled_direct_read_returns_when_the_kernel_is_done() {
    let _alone = alone();
    let numbered = Numbered::new("cancelled");
    let Some(file) = numbered.open("cancelled_direct_read_returns_when_the_kernel_is_done") else {
        return;
    };
    let file = Arc::new(file);
    runtime().build().unwrap().run(|| {
        for round in 0..100u64 {
            let reads = Arc::new(AtomicU64::new(0));
            let all: Vec<_> = (0..8u64)
                .map(|n| {
                    let (file, reads) = (file.clone(), reads.clone());
                    thread::spawn(move || {
                        for i in n.. {
                            let mut block = Block::new();
                            file.read_exact_at(&mut block.0, i % BLOCKS * BLOCK as u64).unwrap();
                            assert!(block.is(i % BLOCKS));
                            reads.fetch_add(1, Ordering::Relaxed);
                        }
                    })
                })
                .collect();
            while reads.load(Ordering::Relaxed) < round % 20 {
                thread::yield_now();
            }
            all.iter().for_each(|one| one.cancel());
            for one in all {
                assert!(one.join().unwrap_err().is::<cancel::Cancelled>());
            }
        }
    });
}

#[test]
fn direct_reads_let_other_microprocesses_run_and_leave_nothing() {
    let _alone = alone();
    let numbered = Numbered::new("others");
    let Some(file) = numbered.open("direct_reads_let_other_microprocesses_run_and_leave_nothing")
    else {
        return;
    };
    let file = Arc::new(file);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let threads = || kumihimo_bench_kit::kernel_threads(std::process::id()).unwrap().len();
    let round = || {
        Runtime::builder().vps(1).build().unwrap().run(|| {
            let over = Arc::new(AtomicBool::new(false));
            let seen = over.clone();
            let other = thread::spawn(move || {
                let mut turns = 0u64;
                while !seen.load(Ordering::Relaxed) {
                    turns += 1;
                    thread::yield_now();
                }
                turns
            });
            let mut block = Block::new();
            for number in 0..BLOCKS {
                file.read_exact_at(&mut block.0, number * BLOCK as u64).unwrap();
            }
            over.store(true, Ordering::Relaxed);
            assert!(other.join().unwrap() > 1);
        });
    };
    // What the process keeps from its first runtime is there then.
    round();
    let before = (descriptors(), threads());
    for _ in 0..10 {
        round();
    }
    // Those of a runtime that has ended are gone, but the kernel may count a kernel thread a moment
    // longer.
    while threads() > before.1 {
        std::thread::yield_now();
    }
    assert_eq!(descriptors(), before.0);
}
