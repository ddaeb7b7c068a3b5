//! `echo`: a server on the first core, and BASE's load generator on the last.

use std::path::Path;
use std::process::Command;

use super::super::child::{Cores, Running, Trouble};
use super::super::verdict::Better;
use super::{Sample, Scratch, Setting, child, numbers};

/// Number of connections, each with one outstanding request.
const CONNECTIONS: &str = "1000";
const WARM_UP_MS: &str = "150";
const SLICE_MS: &str = "150";
const SLICES: usize = 5;

/// Measures several slices on a fresh server and returns the best.
pub fn measure(kumi: &Path, setting: &Setting) -> Result<Sample, Trouble> {
    let directory = Scratch::in_memory()?;
    let mut command = child(kumi, &directory, "echo", &["batch=adaptive"], 1);
    command.env("KUMI_LAB", "batch=adaptive");
    let mut server = Running::start(command, Cores::First)?;
    let port = server.hear_word("listening ")?;
    let mut command = Command::new(&setting.load);
    command.args(["bench-load", &port, CONNECTIONS]);
    let mut load = Running::start(command, Cores::Last(1))?;
    load.hear_word("ready")?;
    let mut requests = slice(&mut load, WARM_UP_MS)?.all;
    let mut sample = Sample::default();
    for _ in 0..SLICES {
        let before = server.cpu_time()?;
        let slice = slice(&mut load, SLICE_MS)?;
        let cpu = server.cpu_time()? - before;
        sample.note("rps", Better::Higher, slice.requests / slice.seconds);
        sample.note("p99", Better::Lower, slice.p99);
        sample.note("cpu", Better::Lower, cpu / slice.all / 1e3);
        requests += slice.all;
    }
    Ok(sample.counted(server.instructions(), requests))
}

struct Slice {
    requests: f64,
    seconds: f64,
    p99: f64,
    /// Replies, including those that were outstanding when the slice ended.
    all: f64,
}

fn slice(load: &mut Running, ms: &str) -> Result<Slice, Trouble> {
    load.tell(ms)?;
    let said = load.hear()?;
    let [requests, seconds, _p50, p99, _p999, all] =
        numbers(&said).ok_or_else(|| load.nonsense(&said, "REQUESTS SECONDS P50 P99 P999 ALL"))?;
    Ok(Slice { requests, seconds, p99, all })
}
