//! `connections`: memory of the server for an idle connection. One server at a time, after one
//! request over each connection.

use rustix::process::{Resource, getrlimit};

use crate::bench::contender::pair::{Pair, Server};
use crate::bench::contender::{Contender, Missing, Programs, Trouble};
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;
use kumi::host::description;

const CONNECTIONS: usize = 10_000;
const BENCH: &str = "connections";
/// Number of descriptors for other purposes, at either end.
const OTHERS: u64 = 200;
/// Maximum memory of a connection for both ends, including the kernel's buffers. Half of the
/// available memory may be used.
const BYTES_EACH: u64 = 64 << 10;
/// Number of runs. Two are enough, because memory use varies little.
const RUNS: usize = 2;

/// Runs every server.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let mut counts = vec![CONNECTIONS.min(possible())];
    if options.full && possible() > CONNECTIONS {
        counts.push(possible());
    }
    let mut samples = Vec::new();
    for count in counts {
        for contender in plan::connection_servers(options) {
            let label = format!("{} connections={count}", contender.describe(BENCH, 1));
            eprintln!("  {label}");
            for _ in 0..options.runs.min(RUNS) {
                match once(contender.clone(), programs, count) {
                    Ok(sample) => samples.push(sample),
                    Err(trouble) => {
                        missing.note(&label, trouble);
                        break;
                    }
                }
            }
        }
    }
    samples
}

/// Number of connections that descriptors and memory allow.
fn possible() -> usize {
    let descriptors =
        getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX).saturating_sub(OTHERS);
    let available = description::available() / 2 / BYTES_EACH;
    usize::try_from(descriptors.min(available)).unwrap_or(usize::MAX)
}

/// Growth of the server's resident memory from its start to the point where every connection has
/// been served once and is idle.
fn once(contender: Contender, programs: &Programs, count: usize) -> Result<Sample, Trouble> {
    let server = Server::start(contender, programs, "echo")?;
    let before = server.memory()?;
    let mut pair = Pair::connect(server, count)?;
    pair.slice(0)?;
    let (rss, _) = pair.server.memory()?.each_since(&before, count);
    let line = format!("rss {rss} B connections={count}");
    Ok(Sample::parse(&line, &pair.server.contender.identity(BENCH, 1))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_connections_are_possible() {
        assert!(possible() > 100);
    }
}
