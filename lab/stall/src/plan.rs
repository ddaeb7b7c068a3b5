//! What one run is asked for, and where both sides meet.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kumihimo_bench_kit::Request;

/// The files of one run, in a directory of its own.
#[derive(Clone, Debug)]
pub struct Place(PathBuf);

impl Place {
    /// In `directory`, which exists.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Place(directory.into())
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// Where the other side listens for the connections of the load.
    #[must_use]
    pub fn load(&self) -> PathBuf {
        self.0.join("load")
    }

    /// A FIFO through which staller `i` says for how many microseconds (four bytes) it wants to be
    /// stalled.
    #[must_use]
    pub fn ask(&self, i: usize) -> PathBuf {
        self.0.join(format!("ask{i}"))
    }

    /// The FIFO in which the answer comes, one byte.
    #[must_use]
    pub fn answer(&self, i: usize) -> PathBuf {
        self.0.join(format!("answer{i}"))
    }

    /// Two files to lock in turn. The other side holds the second when it begins, and takes each
    /// before it lets go of the other.
    #[must_use]
    pub fn locks(&self, i: usize) -> [PathBuf; 2] {
        [self.0.join(format!("lock{i}a")), self.0.join(format!("lock{i}b"))]
    }

    /// The file on a disk whose pages `fault` drops and touches: [`crate::PAGES`] for each staller.
    #[must_use]
    pub fn pages(&self) -> PathBuf {
        self.0.join("pages")
    }

    /// Where the slow files are mounted.
    #[must_use]
    pub fn mount(&self) -> PathBuf {
        self.0.join("slow")
    }

    /// A file that takes as many microseconds to read as the page's number says.
    #[must_use]
    pub fn slow(&self, i: usize) -> PathBuf {
        self.mount().join(format!("read{i}"))
    }

    /// A file to map, each page of which takes [`crate::LONG_US`].
    #[must_use]
    pub fn slow_pages(&self, i: usize) -> PathBuf {
        self.mount().join(format!("page{i}"))
    }
}

/// One run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where both sides meet.
    pub place: Place,
    /// `none`, `fault`, `flock`, `read`, `fuse`, `blocking` or `loop`.
    pub kind: String,
    /// Whether those that loop are of lower priority than the requests.
    pub lower: bool,
    /// Those that loop end when this is set, and not before.
    pub over: Arc<AtomicBool>,
    /// Requests that will come, in all.
    pub count: usize,
    /// Of these, how many come before those that count.
    pub warm: usize,
    /// How long the stallers go on.
    pub time: Duration,
    /// Requests a second, for the record; 0: as fast as they are taken.
    pub rate: f64,
}

impl Plan {
    /// Reads `dir`, `stall`, `priority`, `count`, `warm`, `ms` and `rate`.
    ///
    /// # Errors
    /// `dir` or `count` is missing: the benchmark needs its other side.
    ///
    /// # Panics
    /// If a number cannot be read.
    pub fn of(request: &Request) -> Result<Plan, String> {
        let dir = request.get("dir").ok_or(
            "stall needs dir=, where `kumi-lab bench-outside` waits; `kumi bench stall` starts both",
        )?;
        let count: usize = request.value("count", 0);
        if count == 0 {
            return Err("stall needs count=, the number of requests".to_owned());
        }
        Ok(Plan {
            place: Place::new(dir),
            kind: request.get("stall").unwrap_or("none").to_owned(),
            lower: request.get("priority") == Some("lower"),
            over: Arc::default(),
            count,
            warm: request.value("warm", 0).min(count - 1),
            time: Duration::from_millis(request.value("ms", 1_000)),
            rate: request.value("rate", 0.0),
        })
    }

    /// Whether the stallers loop, which no runtime is told of.
    #[must_use]
    pub fn loops(&self) -> bool {
        self.kind == "loop"
    }

    /// How many stall.
    #[must_use]
    pub fn stallers(&self) -> usize {
        if self.kind == "none" { 0 } else { crate::STALLERS }
    }
}
