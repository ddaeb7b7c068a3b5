//! `echo`: a server on the first core, and BASE's load on the last.

use std::path::Path;
use std::process::Command;

use super::super::child::{Cores, Running, Trouble};
use super::{Sample, Scratch, Setting, child, numbers};

/// Connections, each with one request under way.
const CONNECTIONS: &str = "1000";
const WARM_UP_MS: &str = "150";
const SLICE_MS: &str = "500";

/// One slice on a fresh server.
pub fn measure(kumi: &Path, setting: &Setting) -> Result<Sample, Trouble> {
    let directory = Scratch::in_memory()?;
    let mut command = child(kumi, &directory, "echo", &["batch=adaptive"], 1);
    command.env("KUMI_BATCH", "adaptive");
    let mut server = Running::start(command, Cores::First)?;
    let port = server.hear_word("listening ")?;
    let mut command = Command::new(&setting.load);
    command.args(["bench-load", &port, CONNECTIONS]);
    let mut load = Running::start(command, Cores::Last(1))?;
    load.hear_word("ready")?;
    let warm = slice(&mut load, WARM_UP_MS)?;
    let before = server.cpu_time()?;
    let slice = slice(&mut load, SLICE_MS)?;
    let cpu = (server.cpu_time()? - before) as f64;
    let sample =
        Sample::of([("rps", slice.requests / slice.seconds), ("p99", slice.p99), ("cpu", cpu / slice.all / 1e3)]);
    Ok(sample.counted(server.instructions(), warm.all + slice.all))
}

struct Slice {
    requests: f64,
    seconds: f64,
    p99: f64,
    /// Replies, those included that were under way when the slice ended.
    all: f64,
}

fn slice(load: &mut Running, ms: &str) -> Result<Slice, Trouble> {
    load.tell(ms)?;
    let said = load.hear()?;
    let [requests, seconds, _p50, p99, _p999, all] =
        numbers(&said).ok_or_else(|| load.nonsense(&said, "REQUESTS SECONDS P50 P99 P999 ALL"))?;
    if requests < 1.0 {
        return Err(load.nonsense(&said, "at least one reply"));
    }
    Ok(Slice { requests, seconds, p99, all })
}
