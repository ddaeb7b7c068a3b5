//! Chapter 4: every file of a directory is hashed by a separate thread, and compared with the
//! output of `sha256sum`.

mod tree;

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kumihimo::runtime::{self, Runtime};
use kumihimo::sync::Semaphore;
use kumihimo::thread;
use kumihimo_bench_kit::CpuClock;
use sha2::{Digest, Sha256};

use crate::tour::page::text;
use crate::tour::page::watch::Watch;
use crate::tour::threads::kinds::{Kernel, Kind, Micro};
use crate::tour::{Args, Figures, check};

/// Maximum number of files that are open and in memory.
const OPEN: usize = 32;
/// Number of names for one `sha256sum`, so that the kernel's limit on arguments is not exceeded.
const NAMES: usize = 500;

pub fn run(args: &Args, figures: &mut Figures) -> Result<(), String> {
    let watch = Watch::open("looking for files");
    let (folder, files) = tree::find(args.dir.as_deref())?;
    drop(watch);
    let bytes: u64 = files.iter().map(|f| f.bytes).sum();
    text::say(&format!(
        "{} contains enough files: {} files, {}. Each microprocess reads and hashes one file. The read is inside \
         `thread::blocking`: while the kernel reads the data, the VP runs other microprocesses. A semaphore of \
         {OPEN} limits the open files. The reference is `sha256sum`; its run also loads the files into the page \
         cache.",
        folder.display(),
        text::number(files.len() as u64),
        text::bytes(bytes),
    ));
    println!();
    let watch = Watch::open("sha256sum");
    let start = Instant::now();
    let reference = sha256sum(&files);
    let alone = start.elapsed();
    drop(watch);
    let paths: Arc<[PathBuf]> = files.iter().map(|f| f.path.clone()).collect();
    let (kernel, took_kernel) = hashed("kernel threads", || each::<Kernel>(&paths))?;
    let (pooled, took_pool) = hashed("a pool of kernel threads", || pool(&paths))?;
    let mut threads = 0;
    let (micro, took) = hashed("microprocesses", || {
        // As many are inside `blocking` at a time: their kernel threads are kept instead of being
        // created again.
        let runtime =
            Runtime::builder().concurrency(OPEN).build().map_err(|e| format!("no runtime: {e}"))?;
        runtime.run(|| {
            let done = each::<Micro>(&paths)?;
            threads = runtime::metrics().map_or(0, |m| m.kernel_threads);
            Ok(done)
        })
    })?;
    let row = |name: String, time: Duration, cpu: Option<Duration>, most: usize| {
        let rate = format!("{}/s", text::bytes((bytes as f64 / time.as_secs_f64()) as u64));
        vec![name, text::time(time), rate, cpu.map_or(String::new(), text::time), most.to_string()]
    };
    let of = |name: &str, took: &Took, most| row(name.to_owned(), took.time, Some(took.cpu), most);
    let mut rows = Vec::new();
    if reference.is_ok() {
        rows.push(row("sha256sum, one after the other".into(), alone, None, 1));
    }
    rows.push(of("a kernel thread each", &took_kernel, kernel.most_open));
    rows.push(of(
        &format!("a pool of {} kernel threads", pool_size()),
        &took_pool,
        pooled.most_open,
    ));
    rows.push(of("a microprocess each", &took, micro.most_open));
    text::table(&["", "time", "rate", "CPU time", "open at once, at most"], &rows);
    println!();
    check(kernel.lines == micro.lines && pooled.lines == micro.lines, || {
        "the digests of two runs differ".to_owned()
    })?;
    check(micro.bytes == bytes, || format!("{} bytes read, not {bytes}", micro.bytes))?;
    check(micro.most_open <= OPEN, || format!("{} files were open at once", micro.most_open))?;
    match reference {
        Ok(lines) => {
            let other = lines.iter().zip(&micro.lines).find(|(theirs, ours)| theirs != ours);
            check(lines.len() == micro.lines.len() && other.is_none(), || {
                format!("differs from sha256sum: {other:?}")
            })?;
            text::say(&format!(
                "All {} lines are equal to the output of sha256sum.",
                text::number(lines.len() as u64)
            ));
        }
        Err(why) => text::say(&format!("Not compared with sha256sum: {why}.")),
    }
    text::say(&format!(
        "The microprocesses used {threads} kernel threads. Digest of all lines, ordered by file name: {}...",
        &hex(&Sha256::digest(micro.lines.concat()))[..16],
    ));
    figures.add(
        format!("{} files hashed, a thread each", text::number(files.len() as u64)),
        text::time(took_kernel.time),
        text::time(took.time),
    );
    Ok(())
}

/// Result of hashing. The lines are those that `sha256sum` prints.
#[derive(Default)]
struct Hashed {
    lines: Vec<Vec<u8>>,
    bytes: u64,
    most_open: usize,
}

struct Took {
    time: Duration,
    /// CPU time of the process: other programs do not count.
    cpu: Duration,
}

fn hashed(
    what: &'static str,
    job: impl FnOnce() -> Result<Hashed, String>,
) -> Result<(Hashed, Took), String> {
    let _watch = Watch::open(what);
    let (start, cpu) = (Instant::now(), CpuClock::now());
    let done = job()?;
    Ok((done, Took { time: start.elapsed(), cpu: cpu.elapsed() }))
}

/// Limit on open files, and their number. The semaphore works for both kinds of thread.
struct Door {
    permits: Semaphore,
    open: AtomicUsize,
    most: AtomicUsize,
}

impl Door {
    fn new(permits: usize) -> Door {
        Door {
            permits: Semaphore::new(permits),
            open: AtomicUsize::new(0),
            most: AtomicUsize::new(0),
        }
    }

    /// The line that `sha256sum` prints, and the size of the file.
    fn hash(&self, path: &Path) -> Result<(Vec<u8>, u64), String> {
        let permit = self.permits.acquire();
        self.most.fetch_max(self.open.fetch_add(1, Relaxed) + 1, Relaxed);
        // On a kernel thread without a VP, `blocking` has no effect.
        let content = thread::blocking(|| std::fs::read(path));
        self.open.fetch_sub(1, Relaxed);
        let content = content.map_err(|e| format!("{}: {e}", path.display()))?;
        let line = line(&Sha256::digest(&content), path);
        drop(permit);
        Ok((line, content.len() as u64))
    }
}

/// Hashes with a thread for each file.
fn each<K: Kind>(paths: &Arc<[PathBuf]>) -> Result<Hashed, String> {
    let door = Arc::new(Door::new(OPEN));
    let threads: Vec<_> = (0..paths.len())
        .map(|i| {
            let (door, paths) = (door.clone(), paths.clone());
            K::spawn(move || door.hash(&paths[i]))
        })
        .collect();
    // All threads are joined, even if one fails.
    collect(&door, threads.into_iter().map(K::join).collect())
}

fn pool_size() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// Hashes with as many kernel threads as cores, each taking the next file.
fn pool(paths: &Arc<[PathBuf]>) -> Result<Hashed, String> {
    let door = Door::new(OPEN);
    let next = AtomicUsize::new(0);
    let mut all: Vec<(usize, Result<_, _>)> = std::thread::scope(|scope| {
        let take = || {
            let mine = std::iter::from_fn(|| {
                Some(next.fetch_add(1, Relaxed)).filter(|&i| i < paths.len())
            });
            mine.map(|i| (i, door.hash(&paths[i]))).collect::<Vec<_>>()
        };
        let threads: Vec<_> = (0..pool_size()).map(|_| scope.spawn(take)).collect();
        threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
    });
    all.sort_by_key(|(i, _)| *i);
    collect(&door, all.into_iter().map(|(_, done)| done).collect())
}

fn collect(door: &Door, all: Vec<Result<(Vec<u8>, u64), String>>) -> Result<Hashed, String> {
    let mut hashed = Hashed { most_open: door.most.load(Relaxed), ..Hashed::default() };
    for one in all {
        let (line, bytes) = one?;
        hashed.lines.push(line);
        hashed.bytes += bytes;
    }
    Ok(hashed)
}

fn hex(digest: &[u8]) -> String {
    digest.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn line(digest: &[u8], path: &Path) -> Vec<u8> {
    [hex(digest).as_bytes(), b"  ", path.as_os_str().as_bytes(), b"\n"].concat()
}

/// The output of `sha256sum` for the files, one line each.
fn sha256sum(files: &[tree::File]) -> Result<Vec<Vec<u8>>, String> {
    let mut lines = Vec::new();
    for some in files.chunks(NAMES) {
        let names = some.iter().map(|f| f.path.as_os_str());
        let output = Command::new("sha256sum").arg(OsStr::new("--")).args(names).output();
        let output = output.map_err(|e| format!("it did not start ({e})"))?;
        if !output.status.success() {
            return Err(format!("it failed: {}", String::from_utf8_lossy(&output.stderr).trim()));
        }
        lines.extend(output.stdout.split_inclusive(|&b| b == b'\n').map(<[u8]>::to_vec));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tour::in_runtime;

    #[test]
    fn lines_have_the_format_of_sha256sum() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  /tmp/a b\n";
        assert_eq!(line(&Sha256::digest(b""), Path::new("/tmp/a b")), empty.as_bytes());
    }

    #[test]
    fn threads_microprocesses_and_a_pool_agree() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tour");
        let (_, files) = tree::find(Some(&folder)).unwrap();
        let paths: Arc<[PathBuf]> = files.iter().map(|f| f.path.clone()).collect();
        let micro = in_runtime(|| each::<Micro>(&paths)).unwrap();
        assert!(micro.lines.len() > 5 && micro.most_open >= 1);
        assert_eq!(micro.lines, each::<Kernel>(&paths).unwrap().lines);
        assert_eq!(micro.lines, pool(&paths).unwrap().lines);
        if let Ok(lines) = sha256sum(&files) {
            assert_eq!(micro.lines, lines);
        }
    }

    #[test]
    fn missing_file_is_an_error() {
        let paths: Arc<[PathBuf]> = [PathBuf::from("/nonexistent/file")].into();
        assert!(each::<Kernel>(&paths).is_err_and(|why| why.contains("/nonexistent/file")));
    }
}
