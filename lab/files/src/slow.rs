//! Many readers of slow files, and one client beside them that reads other files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kumihimo_bench_kit::Lateness;

use super::closed::{Operation, Pread, operation};
use super::outcome::Outcome;
use super::tree::{BIG, BIG_BYTES, BLOCK, SMALL, small};

/// Stack size of a reader, of which there are up to a thousand.
const STACK: usize = 128 << 10;
/// Number of small files that the client beside them reads.
const FILES: usize = 4;
/// Time limit for all readers to begin.
const PATIENCE: Duration = Duration::from_secs(60);

/// Readers of uncached blocks, with one outstanding request each. Stopped when dropped.
pub struct Readers {
    over: Arc<AtomicBool>,
    reads: Arc<AtomicU64>,
    /// Time and total of the last count.
    counted: (Instant, u64),
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl Readers {
    /// Starts readers of `blocks` blocks at a time. Returns after as many reads as there are
    /// readers.
    pub fn begin(root: &Path, count: usize, blocks: usize) -> Result<Readers, String> {
        let (over, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let mut readers = Readers {
            over: over.clone(),
            reads: reads.clone(),
            counted: (Instant::now(), 0),
            threads: Vec::new(),
        };
        for reader in 0..count {
            let mut pread = Pread::new(&root.join(BIG), BIG_BYTES, blocks, reader)?;
            let (over, reads) = (over.clone(), reads.clone());
            let body = move || {
                while !over.load(Relaxed) {
                    pread.once()?;
                    reads.fetch_add(1, Relaxed);
                }
                Ok(())
            };
            let thread = thread::Builder::new().stack_size(STACK).spawn(body);
            readers.threads.push(thread.map_err(|e| format!("reader {reader}: {e}"))?);
        }
        let end = Instant::now() + PATIENCE;
        while reads.load(Relaxed) < count as u64 {
            if Instant::now() > end {
                return Err(format!(
                    "{} reads of {count} readers in {PATIENCE:?}",
                    reads.load(Relaxed)
                ));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(readers)
    }

    /// Reads a second since the last call.
    pub fn rate(&mut self) -> Outcome {
        let now = (Instant::now(), self.reads.load(Relaxed));
        let rate = (now.1 - self.counted.1) as f64 / (now.0 - self.counted.0).as_secs_f64();
        self.counted = now;
        Outcome::default().with("rate", rate)
    }

    /// Lets each reader complete its read. Fails if one failed.
    pub fn end(mut self) -> Result<(), String> {
        self.over.store(true, Relaxed);
        for thread in std::mem::take(&mut self.threads) {
            thread.join().map_err(|_| "a reader panicked")??;
        }
        Ok(())
    }
}

impl Drop for Readers {
    fn drop(&mut self) {
        self.over.store(true, Relaxed);
    }
}

/// Operations of the client beside the readers, in turn: stat, and a direct read of a small file.
fn beside(root: &Path) -> Result<Vec<Box<dyn Operation>>, String> {
    let mut all = vec![operation("stat", root, 0)?];
    for n in 0..FILES {
        let path: PathBuf = root.join(SMALL).join(small(n));
        all.push(Box::new(Pread::new(&path, BLOCK as u64, 1, n)?));
    }
    Ok(all)
}

/// Latencies of the client beside the readers during `length`.
pub fn run(root: &Path, length: Duration) -> Result<Outcome, String> {
    let mut all = beside(root)?;
    for operation in &mut all {
        operation.once()?;
    }
    let mut late = Lateness::default();
    let begun = Instant::now();
    let mut now = begun;
    for operation in (0..all.len()).cycle() {
        if now - begun >= length {
            break;
        }
        all[operation].once()?;
        let done = Instant::now();
        late.record(done - now);
        now = done;
    }
    Ok(Outcome::default().rate(&late, (now - begun).as_secs_f64()))
}
