//! `files-stat` and `files-pread`: `kumi mount` serves an ext2 image, and BASE's clients load it.
//! Server and clients share one core, so the rate is the inverse of the total CPU time of a
//! request.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::super::child::{Cores, Running, Trouble, make};
use super::super::verdict::Better;
use super::{Sample, Scratch, Setting};

/// Number of clients, each with one outstanding request.
const CLIENTS: usize = 16;
const WARM_UP_MS: usize = 60;
const SLICE_MS: usize = 50;
const SLICES: usize = 8;
/// Operations, which are also the metrics.
const OPERATIONS: [&str; 2] = ["stat", "pread"];
/// Size of a block in bytes.
const BLOCK: usize = 4_096;
/// Files that the load generator expects: `small/f000` to `small/f063` of one block each, and
/// `cached`, whose blocks begin with their numbers.
const SMALLS: usize = 64;
const CACHED_BYTES: usize = 64 << 20;
const IMAGE_BYTES: u64 = 96 << 20;

/// An ext2 image with the files that the load generator expects.
#[derive(Debug)]
pub struct Store {
    _directory: Scratch,
    image: PathBuf,
}

impl Store {
    fn new() -> Result<Store, Trouble> {
        let directory = Scratch::in_memory()?;
        let (files, image) = (directory.path().join("files"), directory.path().join("image"));
        fill(&files).map_err(|e| format!("{}: {e}", files.display()))?;
        let made = File::create(&image).and_then(|file| file.set_len(IMAGE_BYTES));
        made.map_err(|e| format!("{}: {e}", image.display()))?;
        let mut mke2fs = Command::new("mke2fs");
        mke2fs
            .args(["-q", "-F", "-t", "ext2", "-b", "4096", "-m", "0", "-d"])
            .arg(&files)
            .arg(&image);
        let output = mke2fs.stdin(Stdio::null()).output().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                Trouble::Refused("mke2fs is not installed (apt-get install e2fsprogs)".to_owned())
            }
            _ => Trouble::Failed(format!("mke2fs: {e}")),
        })?;
        if !output.status.success() {
            return Err(
                format!("mke2fs: {}", String::from_utf8_lossy(&output.stderr).trim()).into()
            );
        }
        Ok(Store { _directory: directory, image })
    }
}

fn fill(files: &Path) -> io::Result<()> {
    fs::create_dir_all(files.join("small"))?;
    for n in 0..SMALLS {
        fs::write(files.join("small").join(format!("f{n:03}")), [0xa5; BLOCK])?;
    }
    let mut cached = BufWriter::with_capacity(1 << 20, File::create(files.join("cached"))?);
    let mut block = [0xa5; BLOCK];
    for number in 0..(CACHED_BYTES / BLOCK) as u64 {
        block[..8].copy_from_slice(&number.to_ne_bytes());
        cached.write_all(&block)?;
    }
    cached.flush()
}

/// Measures several slices of each operation on a fresh mount and returns the best.
pub fn measure(kumi: &Path, setting: &mut Setting) -> Result<Sample, Trouble> {
    let store = match &mut setting.store {
        Some(store) => store,
        none => none.insert(Store::new()?),
    };
    let directory = Scratch::in_memory()?;
    let [mount, machine] = ["mount", "machine"].map(|name| directory.path().join(name));
    make(&mount)?;
    let mut command = Command::new(kumi);
    command.args([
        "mount",
        "-f",
        "--timeout",
        "0",
        "--uring=off",
        "--organisation",
        "microprocesses",
    ]);
    command.args(["--threads", "pool", "--store", "ext2", "--cache", "256m"]);
    command.arg(&store.image).arg(&mount).env("KUMI_DIR", &machine);
    let mut server = Running::start(command, Cores::Last(1))?;
    server.hear_word("mounted ")?;
    let measured = load(&setting.load, &mount, &machine);
    let instructions = server.instructions();
    // Unmounts. Also after a failure, so that the directory can be removed.
    server.terminate()?;
    let (sample, operations) = measured?;
    Ok(sample.counted(instructions, operations))
}

/// Returns the metrics and the total number of operations.
fn load(program: &Path, mount: &Path, machine: &Path) -> Result<(Sample, f64), Trouble> {
    let mut command = Command::new(program);
    command.arg("bench-files").arg(mount).arg(mount).env("KUMI_DIR", machine);
    let mut load = Running::start(command, Cores::Last(1))?;
    load.hear_word("ready")?;
    ask(&mut load, "warm", "mb_s")?;
    let (mut sample, mut operations) = (Sample::default(), 0.0);
    for operation in OPERATIONS {
        operations += ask(&mut load, &format!("{operation} {CLIENTS} {WARM_UP_MS}"), "ops")?["ops"];
        for _ in 0..SLICES {
            let outcome = ask(&mut load, &format!("{operation} {CLIENTS} {SLICE_MS}"), "rate")?;
            operations += outcome.get("ops").copied().unwrap_or_default();
            sample.note(operation, Better::Higher, outcome["rate"]);
        }
    }
    Ok((sample, operations))
}

/// Sends a line to the load generator. Its reply must contain `wanted`.
fn ask(load: &mut Running, line: &str, wanted: &str) -> Result<BTreeMap<String, f64>, Trouble> {
    load.tell(line)?;
    let said = load.hear()?;
    match outcome(&said) {
        Some(outcome) if outcome.get(wanted).is_some_and(|&value| value > 0.0) => Ok(outcome),
        _ => Err(load.nonsense(&said, &format!("{wanted}=NUMBER for {line:?}"))),
    }
}

/// Parses `NAME=NUMBER` pairs, separated by blanks.
fn outcome(line: &str) -> Option<BTreeMap<String, f64>> {
    let number = |word: &str| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_owned(), value.parse().ok()?))
    };
    line.split_whitespace().map(number).collect()
}
