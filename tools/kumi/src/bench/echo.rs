//! `echo`: all servers live at once on core 0, each with its own load on core 1; the loads run in turn, slice by slice, so
//! that what disturbs the machine disturbs all alike.

use std::fs;
use std::process::Command;

use super::contender::{Contender, Missing, Programs, own_cores};
use super::plan::{self, Options};
use super::program::Program;
use super::row::Sample;

const SLICE_MS: u64 = 500;
const WARM_UP_MS: u64 = 300;

/// Runs every cell.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    let mut samples = Vec::new();
    for connections in plan::echo_connections(options) {
        let mut pairs = Vec::new();
        for contender in plan::echo_servers(options, connections) {
            eprintln!("  {} connections={connections}", contender.describe("echo", 1));
            match Pair::start(contender.clone(), programs, connections) {
                Ok(pair) => pairs.push(pair),
                Err(why) => {
                    missing.note(&format!("{} connections={connections}", contender.describe("echo", 1)), why.into());
                }
            }
        }
        // More slices than runs of other benchmarks: each is short.
        for _ in 0..options.runs * 2 {
            pairs.retain_mut(|pair| match pair.slice(connections) {
                Ok(some) => {
                    samples.extend(some);
                    true
                }
                Err(why) => {
                    missing
                        .note(&format!("{} connections={connections}", pair.contender.describe("echo", 1)), why.into());
                    false
                }
            });
        }
    }
    samples
}

/// A server and its load.
pub struct Pair {
    pub contender: Contender,
    // Dropped first, so that the server sees its connections close.
    load: Program,
    server: Program,
}

impl Pair {
    /// Both, warmed up.
    pub fn start(contender: Contender, programs: &Programs, connections: usize) -> Result<Self, String> {
        let cores = own_cores();
        let (first, last) = (cores[0], cores[cores.len() - 1]);
        let mut server = Program::start(&[first], contender.command(programs, "echo", 1)?)?;
        let said = server.hear()?;
        let port = said.strip_prefix("listening ").ok_or_else(|| format!("the server said {said:?}"))?.to_owned();
        let mut load = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
        load.args(["bench-load", &port, &connections.to_string()]);
        let mut load = Program::start(&[last], load)?;
        let said = load.hear().map_err(|e| format!("the load: {e}"))?;
        if said != "ready" {
            return Err(format!("the load said {said:?}"));
        }
        load.tell(&WARM_UP_MS.to_string())?;
        load.hear().map_err(|e| format!("the load: {e}"))?;
        Ok(Pair { contender, load, server })
    }

    /// Ends both. What the server said last, and which process it was.
    pub fn end(mut self) -> (Result<String, String>, u32) {
        (self.server.last_word(), self.server.id())
    }

    /// One slice of the load: samples of the whole row.
    pub fn slice(&mut self, connections: usize) -> Result<Vec<Sample>, String> {
        let before = cpu_time(self.server.id());
        self.load.tell(&SLICE_MS.to_string())?;
        let said = self.load.hear().map_err(|e| format!("the load: {e}"))?;
        let cpu = cpu_time(self.server.id()).saturating_sub(before);
        let numbers: Vec<f64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[requests, seconds, p50, p99, p999] = numbers.as_slice() else {
            return Err(format!("the load said {said:?}"));
        };
        let identity = self.contender.identity("echo", 1);
        let lines = [
            ("rps", requests / seconds, "1/s"),
            ("p50", p50, "us"),
            ("p99", p99, "us"),
            ("p999", p999, "us"),
            ("server_cpu", cpu as f64 / requests, "ns"),
        ];
        // No reply in time: the rate is 0, the rest is unknown.
        let known = if requests > 0.0 { lines.len() } else { 1 };
        lines[..known]
            .iter()
            .map(|(metric, value, unit)| {
                Sample::parse(&format!("{metric} {value} {unit} connections={connections}"), &identity)
            })
            .collect()
    }
}

/// Nanoseconds on a core so far, over all kernel threads of a process.
fn cpu_time(pid: u32) -> u64 {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return 0 };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("schedstat")).ok())
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_cpu_time_is_counted() {
        assert!(cpu_time(std::process::id()) > 0);
    }
}
