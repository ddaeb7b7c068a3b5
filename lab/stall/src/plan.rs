//! Parameters of one run, and the directory that both processes share.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use kumihimo_bench_kit::Request;

/// Files of one run in a separate directory.
#[derive(Clone, Debug)]
pub struct Place(PathBuf);

impl Place {
    /// Uses `directory`, which must exist.
    #[must_use]
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Place(directory.into())
    }

    /// The directory.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.0
    }

    /// Socket on which the peer listens for the connections of the load.
    #[must_use]
    pub fn load(&self) -> PathBuf {
        self.0.join("load")
    }

    /// FIFO to which staller `i` writes the duration of its next stall in microseconds (four
    /// bytes).
    #[must_use]
    pub fn ask(&self, i: usize) -> PathBuf {
        self.0.join(format!("ask{i}"))
    }

    /// FIFO from which the reply is read, one byte.
    #[must_use]
    pub fn answer(&self, i: usize) -> PathBuf {
        self.0.join(format!("answer{i}"))
    }

    /// Two files to lock in turn. The peer holds the second one at the start, and acquires each
    /// before it releases the other.
    #[must_use]
    pub fn locks(&self, i: usize) -> [PathBuf; 2] {
        [self.0.join(format!("lock{i}a")), self.0.join(format!("lock{i}b"))]
    }

    /// File on a disk whose pages `fault` drops and touches: [`crate::PAGES`] for each staller.
    #[must_use]
    pub fn pages(&self) -> PathBuf {
        self.0.join("pages")
    }

    /// Mount point of the slow files.
    #[must_use]
    pub fn mount(&self) -> PathBuf {
        self.0.join("slow")
    }

    /// File in which each page takes as many microseconds to read as its number.
    #[must_use]
    pub fn slow(&self, i: usize) -> PathBuf {
        self.mount().join(format!("read{i}"))
    }

    /// File to map, each page of which takes [`crate::LONG_US`].
    #[must_use]
    pub fn slow_pages(&self, i: usize) -> PathBuf {
        self.mount().join(format!("page{i}"))
    }
}

/// Parameters of one run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Directory shared with the peer.
    pub place: Place,
    /// Kind of stall: `none`, `fault`, `flock`, `read`, `fuse`, `blocking` or `loop`.
    pub kind: String,
    /// True if looping stallers have a lower priority than the requests.
    pub lower: bool,
    /// Set to end looping stallers. They end for no other reason.
    pub over: Arc<AtomicBool>,
    /// Total number of requests.
    pub count: usize,
    /// Number of requests at the start that do not count.
    pub warm: usize,
    /// Duration for which the stallers run.
    pub time: Duration,
    /// Requests a second, for the record; 0 means as fast as they are accepted.
    pub rate: f64,
}

impl Plan {
    /// Parses `dir`, `stall`, `priority`, `count`, `warm`, `ms` and `rate`.
    ///
    /// # Errors
    /// If `dir` or `count` is missing, because the benchmark needs its peer.
    ///
    /// # Panics
    /// If a number is invalid.
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

    /// Returns whether the stallers loop, which no runtime is notified of.
    #[must_use]
    pub fn loops(&self) -> bool {
        self.kind == "loop"
    }

    /// Number of stallers.
    #[must_use]
    pub fn stallers(&self) -> usize {
        if self.kind == "none" { 0 } else { crate::STALLERS }
    }
}
