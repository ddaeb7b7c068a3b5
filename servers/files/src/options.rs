//! `mount` and `umount` on the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use kumihimo_fuse::{Organisation, Threads};

/// `kumi mount`.
#[derive(Args, Clone, Debug)]
pub struct MountOptions {
    /// How the server is divided into threads and processes
    #[arg(long, value_enum, default_value = "microprocesses")]
    pub(crate) organisation: Organised,
    /// Which thread handles which request: a number of identical ones, pool, per-request, per-file.
    /// Not for those that are sequential
    #[arg(long, value_name = "HOW", default_value = "pool")]
    pub(crate) threads: Threads,
    /// Change nothing
    #[arg(long)]
    pub(crate) read_only: bool,
    /// What STORE is; found out unless given
    #[arg(long, value_enum)]
    pub(crate) store: Option<Backing>,
    /// Stay in the foreground, and say when requests are served
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// Leave the terminal's session: for the process that serves in the background
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
    /// In the background, append to this file what there is to say; nothing else hears of it
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
    /// Let the store's disk take so much longer for each block of 4 KB: 200us, 50ms
    #[arg(long, value_name = "TIME", default_value = "0us", value_parser = duration)]
    pub(crate) delay: Duration,
    /// How long the kernel may believe attributes and names, in seconds
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub(crate) timeout: Duration,
    /// Let the kernel keep what is written and send it later, in larger pieces
    #[arg(long)]
    pub(crate) writeback: bool,
    /// List directories with the attributes of what is in them
    #[arg(long)]
    pub(crate) readdirplus: bool,
    /// Take requests through io_uring: where the kernel lets us (auto), or else not at all
    #[arg(long, value_enum, default_value = "auto", default_missing_value = "on", num_args = 0..=1, require_equals = true)]
    pub(crate) uring: Uring,
    /// Let other users in; always so where root mounts
    #[arg(long)]
    pub(crate) allow_other: bool,
    /// An ext2 image, a block device with one, or a directory
    #[arg(value_name = "STORE")]
    pub(crate) from: PathBuf,
    /// An empty directory
    pub(crate) mountpoint: PathBuf,
}

/// `kumi umount`.
#[derive(Args, Clone, Debug)]
pub struct UnmountOptions {
    /// Let it vanish at once, and end when nobody uses it any more
    #[arg(short, long)]
    pub(crate) lazy: bool,
    /// Where it is mounted
    pub(crate) mountpoint: PathBuf,
}

/// [`Organisation`], by the names of the command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Organised {
    /// One loop, one request at a time (MINIX)
    Sequential,
    /// User-level threads of which the kernel knows nothing (the paper's MTFS)
    UserThreads,
    /// Files and clock in a process each, both sequential (the paper's MPFS)
    Processes,
    /// Threads of the kernel
    KernelThreads,
    /// Threads by cooperation of user and kernel
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

/// Whether requests come through io_uring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Uring {
    /// Where the kernel lets a server ask for it
    Auto,
    /// Or it is an error
    On,
    /// Through /dev/fuse
    Off,
}

/// What a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Backing {
    /// An ext2 image or a block device with one
    Ext2,
    /// A directory of this machine
    Host,
}

fn bytes(text: &str) -> Result<usize, String> {
    match kumihimo_config::bytes(text) {
        Some(value) if value >= 1 << 20 => Ok(value),
        Some(_) => Err("1m at least".to_owned()),
        None => Err("a number of bytes is wanted, as 64m or 1g".to_owned()),
    }
}

fn duration(text: &str) -> Result<Duration, String> {
    kumihimo_config::span(text).ok_or_else(|| "a time is wanted, as 200us, 50ms or 1s".to_owned())
}

fn seconds(text: &str) -> Result<Duration, String> {
    text.parse::<f64>()
        .ok()
        .and_then(|s| Duration::try_from_secs_f64(s).ok())
        .ok_or_else(|| "a number of seconds is wanted, 0 or more".to_owned())
}

#[cfg(test)]
mod tests;
