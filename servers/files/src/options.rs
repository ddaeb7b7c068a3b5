//! Command-line options of `mount` and `umount`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use kumihimo_fuse::{Organisation, Threads};

/// Options of `kumi mount`.
#[derive(Args, Clone, Debug)]
pub struct MountOptions {
    /// How the server is divided into threads and processes
    #[arg(long, value_enum, default_value = "microprocesses")]
    pub(crate) organisation: Organised,
    /// How requests are assigned to threads: N (identical threads), pool, per-request, per-file.
    /// Ignored by sequential organisations
    #[arg(long, value_name = "HOW", default_value = "pool")]
    pub(crate) threads: Threads,
    /// Refuse all changes
    #[arg(long)]
    pub(crate) read_only: bool,
    /// Type of STORE; detected by default
    #[arg(long, value_enum)]
    pub(crate) store: Option<Backing>,
    /// Stay in the foreground, and print a line once requests are served
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Start a new session: set for the server process in the background
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
    /// Append messages of a background server to this file; without it they are lost
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
    /// Mount the clock here: now, monotonic, uptime
    #[arg(long, value_name = "MOUNTPOINT")]
    pub(crate) clock: Option<PathBuf>,
    /// Serve the clock at a gate of this name
    #[arg(long, value_name = "NAME")]
    pub(crate) gate: Option<String>,
    /// Memory for blocks of the store (k, m, g: units of 1024)
    #[arg(long, value_name = "BYTES", default_value = "64m", value_parser = bytes)]
    pub(crate) cache: usize,
    /// Add this delay to each access to a 4 KB block of the store's disk: 200us, 50ms
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = duration)]
    pub(crate) delay: Duration,
    /// How long the kernel may cache attributes and names, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Let the kernel cache writes and send them later in larger requests
    #[arg(long)]
    pub(crate) writeback: bool,
    /// Return attributes with directory entries
    #[arg(long)]
    pub(crate) readdirplus: bool,
    /// Receive requests through io_uring: auto (if the kernel allows it), on (or fail), off
    #[arg(long, value_enum, default_value = "auto", default_missing_value = "on", num_args = 0..=1, require_equals = true)]
    pub(crate) uring: Uring,
    /// Allow other users access; implied if root mounts
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// An ext2 image, a block device with one, or a directory
    #[arg(value_name = "STORE")]
    pub(crate) from: PathBuf,
    /// An empty directory
    pub(crate) mountpoint: PathBuf,
}

/// Options of `kumi umount`.
#[derive(Args, Clone, Debug)]
pub struct UnmountOptions {
    /// Detach the mount at once, and finish when it is no longer in use
    #[arg(short, long)]
    pub(crate) lazy: bool,
    /// The mount point
    pub(crate) mountpoint: PathBuf,
}

/// [`Organisation`] with its names on the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Organised {
    /// One thread, one request at a time (as in MINIX)
    Sequential,
    /// User-level threads without kernel support (the paper's MTFS)
    UserThreads,
    /// One process for the files and one for the clock, both sequential (the paper's MPFS)
    Processes,
    /// Kernel threads
    KernelThreads,
    /// Microprocesses, with kernel events
    Microprocesses,
}

impl From<Organised> for Organisation {
    fn from(organised: Organised) -> Organisation {
        match organised {
            Organised::Sequential => Organisation::Sequential,
            Organised::UserThreads => Organisation::UserThreads,
            Organised::Processes => Organisation::Processes,
            Organised::KernelThreads => Organisation::KernelThreads,
            Organised::Microprocesses => Organisation::Microprocesses,
        }
    }
}

/// Whether to receive requests through io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Uring {
    /// If the kernel allows it
    Auto,
    /// Always; fail if the kernel does not allow it
    On,
    /// Never; use /dev/fuse
    Off,
}

/// Type of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backing {
    /// An ext2 image or a block device with one
    Ext2,
    /// A directory of the host
    Host,
}

fn bytes(text: &str) -> Result<usize, String> {
    match kumihimo_config::bytes(text) {
        Some(value) if value >= 1 << 20 => Ok(value),
        Some(_) => Err("expected at least 1m".to_owned()),
        None => Err("expected a number of bytes, for example 64m or 1g".to_owned()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    kumihimo_config::span(text)
        .ok_or_else(|| "expected a time, for example 200us, 50ms or 1s".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .ok_or_else(|| "expected a number of seconds, 0 or more".to_owned())
}

#[cfg(test)]
mod tests;
