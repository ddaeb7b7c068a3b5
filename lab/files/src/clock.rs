//! `time` of the paper's first load (P1): a process that requests the time, here by reading a file
//! of the time server.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use kumihimo_bench_kit::files::O_DIRECT;

use super::aligned::Aligned;
use super::outcome::{Outcome, Spent};
use super::tree::BLOCK;

/// Name of the file in the clock's mount.
pub const NOW: &str = "now";

fn open(path: &Path) -> Result<File, String> {
    OpenOptions::new()
        .read(true)
        .custom_flags(O_DIRECT)
        .open(path)
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// Makes `requests` requests. Equal times would show that a read was not a request.
pub fn run(clock: &Path, requests: u64, go: &mut dyn FnMut()) -> Result<Outcome, String> {
    let path = clock.join(NOW);
    let file = open(&path)?;
    let mut buffer = Aligned::new(BLOCK);
    let mut last = Vec::new();
    let mut ask = || -> Result<(), String> {
        let length =
            file.read_at(buffer.bytes(), 0).map_err(|e| format!("{}: {e}", path.display()))?;
        let told = &buffer.bytes()[..length];
        if told.is_empty() || told == last {
            return Err(format!(
                "{} returned {:?} twice: not every read was a request",
                path.display(),
                String::from_utf8_lossy(told)
            ));
        }
        last.clear();
        last.extend_from_slice(told);
        Ok(())
    };
    (0..100).try_for_each(|_| ask())?;
    go();
    let spent = Spent::begin()?;
    (0..requests).try_for_each(|_| ask())?;
    spent.end()
}
