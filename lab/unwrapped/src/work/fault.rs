//! `fault`: page faults on a file that is not in the page cache.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use kumihimo_bench_stall::{PAGE, PAGES, Pages};
use rustix::fs::{Advice, fadvise, statfs};

use super::Work;
use crate::plan::Plan;
use crate::threads::Body;

/// A directory on a disk: /tmp may be a tmpfs, which has no major faults.
const DISK: &str = "/var/tmp";
/// TMPFS_MAGIC, see statfs(2).
const TMPFS: i64 = 0x0102_1994;
/// Value of every byte of the file.
const BYTE: u8 = 7;
/// Minimum share of accesses that must have waited for the disk.
const ENOUGH: f64 = 0.9;

/// Each body repeatedly drops one of its pages and touches it.
pub fn touches(plan: &Plan) -> Result<Work, String> {
    let said = |e: io::Error| format!("{DISK}: {e}");
    if statfs(DISK).map_err(|e| said(e.into()))?.f_type == TMPFS {
        return Err(format!("refused: {DISK} is on a tmpfs, whose pages do not come from a disk"));
    }
    let pages = map(plan.count).map_err(said)?;
    let rounds = plan.rounds;
    let body = |mut pages: Pages| {
        Box::new(move || {
            for _ in 0..rounds {
                pages.drop_next();
                assert_eq!(pages.touch(), BYTE);
            }
        }) as Body
    };
    let touches = plan.count * rounds;
    let mut work = Work::of(pages.into_iter().map(body).collect());
    work.end = Box::new(move |used| {
        let reached = u8::from(used.major_faults as f64 >= touches as f64 * ENOUGH);
        format!(" touches:={touches} majflt:={} reached:={reached}", used.major_faults)
    });
    Ok(work)
}

/// Maps the file's pages, as many for each of `count` bodies as in `stall`. The file is already
/// unlinked.
fn map(count: usize) -> io::Result<Vec<Pages>> {
    static FILES: AtomicUsize = AtomicUsize::new(0);
    let name = format!("kumi-unwrapped-{}-{}", process::id(), FILES.fetch_add(1, Relaxed));
    let path = PathBuf::from(DISK).join(name);
    let mapped = write(&path, count).and_then(|()| {
        (0..count).map(|i| Pages::map(&path, i * PAGES, PAGES)).collect::<io::Result<Vec<_>>>()
    });
    fs::remove_file(&path)?;
    mapped
}

fn write(path: &Path, count: usize) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.write_all(&vec![BYTE; count * PAGES * PAGE])?;
    file.sync_all()?;
    Ok(fadvise(&file, 0, None, Advice::DontNeed)?)
}
