//! Stacks of the holders and waiters of locks, beside a trace: `kumi trace --stacks`.
//!
//! A trace has no stacks, because walking one in each wait would take longer than most waits. So
//! `kumi trace` asks the traced process for its locks now and then, as `kumi locks --backtraces`
//! does, and writes what it gets into a file beside the trace, as lines of JSON. Nothing is added
//! to the way of a wait.

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kumihimo_config::named_file;
use kumihimo_machine::client::{Machine, Neighbour};

use crate::ask;
use crate::show::locks;

/// Time between two samples at first. It grows with the run, so that a run of any length has some
/// thousand samples, evenly spread over the logarithm of its time.
const FIRST: Duration = Duration::from_millis(50);
/// A sample comes after this multiple of the last one's time, at least: the traced process spends
/// at most 5 % of a core on them.
const REST: u32 = 20;
/// The time since the start over the time to the next sample.
const GROWTH: u32 = 200;

/// The file for the stacks that belong to a trace.
pub(super) fn beside(trace: &Path) -> PathBuf {
    let mut name: OsString = trace.as_os_str().to_owned();
    name.push(".locks");
    name.into()
}

/// Samples a process until it is finished.
pub(super) struct Sampler {
    stop: Sender<()>,
    thread: JoinHandle<u64>,
}

impl Sampler {
    /// Starts to sample process `pid`, as soon as it can be reached.
    pub(super) fn start(pid: u32, output: &Path) -> Result<Sampler, String> {
        let at = |e: std::io::Error| format!("{}: {e}", output.display());
        let file = named_file::open(output, OpenOptions::new().write(true)).map_err(at)?;
        file.set_len(0).map_err(at)?;
        let mut out = BufWriter::new(file);
        let machine = Machine::mine().map_err(|e| e.to_string())?;
        let (stop, stopped) = mpsc::channel();
        let work = move || {
            let (begun, mut pause, mut samples) = (Instant::now(), FIRST, 0);
            let mut neighbour = None;
            while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(pause) {
                let before = Instant::now();
                neighbour = neighbour.or_else(|| find(&machine, pid));
                if let Some(it) = &mut neighbour {
                    // Flushed, so that a reader meanwhile, or after a crash, has whole samples.
                    let sampled = locks::sample(it, &mut out);
                    match sampled.and_then(|()| out.flush().map_err(|e| e.to_string())) {
                        Ok(()) => samples += 1,
                        // The program ends, or is too busy to answer.
                        Err(_) => neighbour = None,
                    }
                }
                pause = FIRST.max(before.elapsed() * REST).max(begun.elapsed() / GROWTH);
            }
            samples
        };
        let builder = std::thread::Builder::new().name("kumi-lock-stacks".into());
        let thread = builder.spawn(work).map_err(|e| format!("no kernel thread: {e}"))?;
        Ok(Sampler { stop, thread })
    }

    /// Ends, and returns the number of samples.
    pub(super) fn finish(self) -> Result<u64, String> {
        drop(self.stop);
        self.thread.join().map_err(|_| "the sampling thread panicked".to_owned())
    }
}

fn find(machine: &Machine, pid: u32) -> Option<Neighbour> {
    let found = ask::each(machine.spaces().ok()?, |neighbour| {
        neighbour.space().ok().filter(|space| space.pid == pid && space.vps > 0)
    });
    found.into_iter().find_map(|(neighbour, space)| space.map(|_| neighbour))
}
