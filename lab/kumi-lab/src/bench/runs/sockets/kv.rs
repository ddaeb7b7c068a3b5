//! `kv`: key-value servers with Redis's protocol, all alive at the same time on the first core.
//! redis-benchmark drives one at a time from the last core, slice by slice in random order.

use std::process::Command;

use crate::bench::contender::pair::cpu_time;
use crate::bench::contender::program::Program;
use crate::bench::contender::redis::{Redis, not_installed};
use crate::bench::contender::{
    Contender, Missing, Programs, Runtime, Trouble, output_on, own_cores,
};
use crate::bench::plan::order::Order;
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;

const BENCH: &str = "kv";
const COMMANDS: [&str; 2] = ["set", "get"];
const CONNECTIONS: [usize; 2] = [50, 1_000];
const PIPELINES: [usize; 2] = [1, 16];
/// Requests in a slice, for each outstanding request of a connection: about 0.3 s.
const REQUESTS: usize = 20_000;
const LOAD: &str = "redis-benchmark";

/// Runs every cell.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    if let Err(trouble) = load_is_there() {
        missing.note(BENCH, trouble);
        return Vec::new();
    }
    let mut servers = Vec::new();
    for contender in plan::kv_servers(options) {
        let label = contender.describe(BENCH, 1);
        eprintln!("  {label}");
        match Server::start(contender, programs) {
            Ok(server) => servers.push(Some(server)),
            Err(trouble) => missing.note(&label, trouble),
        }
    }
    let mut samples = Vec::new();
    let mut order = Order::new(options.seed);
    for _ in 0..options.runs {
        for cell in cells() {
            let mut round = vec![Vec::new(); servers.len()];
            for i in order.round(servers.len()) {
                let Some(server) = &servers[i] else { continue };
                match server.slice(&cell) {
                    Ok(some) => round[i] = some,
                    Err(trouble) => {
                        missing.note(
                            &format!("{} {}", server.contender.describe(BENCH, 1), cell.keys()),
                            trouble,
                        );
                        servers[i] = None;
                    }
                }
            }
            samples.extend(round.into_iter().flatten());
        }
    }
    samples
}

/// SET and GET once each, on a separate server with 50 connections and 16 outstanding requests on
/// each.
pub fn pipelined(contender: Contender, programs: &Programs) -> Result<Vec<Sample>, Trouble> {
    load_is_there()?;
    let server = Server::start(contender, programs)?;
    let mut samples = Vec::new();
    for command in COMMANDS {
        samples.extend(server.slice(&Cell {
            command,
            connections: CONNECTIONS[0],
            pipeline: PIPELINES[1],
        })?);
    }
    Ok(samples)
}

fn load_is_there() -> Result<(), Trouble> {
    let said = output_on(&own_cores(), Command::new(LOAD).arg("--version"));
    said.map(drop).map_err(|trouble| not_installed(trouble, LOAD, "redis-tools"))
}

struct Cell {
    command: &'static str,
    connections: usize,
    pipeline: usize,
}

/// All cells. A value is set before it is read.
fn cells() -> impl Iterator<Item = Cell> {
    CONNECTIONS.into_iter().flat_map(|connections| {
        PIPELINES.into_iter().flat_map(move |pipeline| {
            COMMANDS.map(|command| Cell { command, connections, pipeline })
        })
    })
}

impl Cell {
    fn keys(&self) -> String {
        format!(
            "command={} connections={} pipeline={}",
            self.command, self.connections, self.pipeline
        )
    }
}

/// A server, ended when dropped.
struct Server {
    contender: Contender,
    port: String,
    process: Process,
}

enum Process {
    Program(Program),
    Redis(Redis),
}

impl Process {
    fn id(&self) -> u32 {
        match self {
            Process::Program(program) => program.id(),
            Process::Redis(redis) => redis.id(),
        }
    }
}

impl Server {
    fn start(contender: Contender, programs: &Programs) -> Result<Self, Trouble> {
        let cores = &own_cores()[..1];
        let command = match contender.runtime {
            Runtime::Redis => {
                let redis = Redis::start(cores)?;
                return Ok(Server {
                    contender,
                    port: redis.port.to_string(),
                    process: Process::Redis(redis),
                });
            }
            Runtime::Kumihimo => ours(programs)?,
            _ => contender.command(programs, BENCH, 1)?,
        };
        let mut program = Program::start(cores, command)?;
        let port = loop {
            let said = program.hear().map_err(|e| format!("the server: {e}"))?;
            if let Some(address) = said.strip_prefix("listening ") {
                // ADDRESS:PORT or PORT alone.
                break address.rsplit(':').next().unwrap_or_default().to_owned();
            }
        };
        Ok(Server { contender, port, process: Process::Program(program) })
    }

    fn slice(&self, cell: &Cell) -> Result<Vec<Sample>, Trouble> {
        let requests = REQUESTS * cell.pipeline * if cell.connections > 100 { 2 } else { 1 };
        let [count, connections, pipeline] =
            [requests, cell.connections, cell.pipeline].map(|n| n.to_string());
        let mut load = Command::new(LOAD);
        load.args(["--csv", "-h", "127.0.0.1", "-p", &self.port, "-t", cell.command]);
        load.args(["-n", &count, "-c", &connections, "-P", &pipeline]);
        let cores = own_cores();
        let before = cpu_time(self.process.id());
        let said = output_on(&cores[cores.len() - 1..], &mut load)?;
        let cpu = cpu_time(self.process.id()).saturating_sub(before) as f64 / requests as f64 / 1e3;
        let (rps, p99) =
            parse(&said, cell.command).ok_or_else(|| format!("{LOAD} printed {said:?}"))?;
        let row = [("rps", rps, "1/s"), ("p99", p99 * 1e3, "us"), ("cpu", cpu, "us")];
        let identity = self.contender.identity(BENCH, 1);
        let sample = |(metric, value, unit)| {
            Sample::parse(&format!("{metric} {value} {unit} {}", cell.keys()), &identity)
        };
        Ok(row.into_iter().map(sample).collect::<Result<_, _>>()?)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Process::Program(program) = &self.process {
            program.terminate();
        }
    }
}

/// The server as a user starts it, with one VP.
fn ours(programs: &Programs) -> Result<Command, Trouble> {
    let kumi =
        programs.get(&Runtime::Kumihimo).ok_or("not asked for")?.as_ref().map_err(String::clone)?;
    let mut command = Command::new(kumi);
    command.args(["serve", "kv", "--listen", "127.0.0.1:0"]).env("KUMI_VPS", "1");
    Ok(command)
}

/// Parses requests a second and the 99th percentile in milliseconds from the output of `--csv`.
fn parse(csv: &str, command: &str) -> Option<(f64, f64)> {
    let cells = |line: &str| -> Vec<String> {
        line.split(',').map(|cell| cell.trim_matches('"').to_owned()).collect()
    };
    let head = cells(csv.lines().find(|line| line.starts_with("\"test\""))?);
    let row = csv.lines().map(cells).find(|row| row[0].eq_ignore_ascii_case(command))?;
    let of = |name: &str| row.get(head.iter().position(|column| column == name)?)?.parse().ok();
    Some((of("rps")?, of("p99_latency_ms")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_of_redis_benchmark_is_parsed() {
        let csv = "\"test\",\"rps\",\"avg_latency_ms\",\"p99_latency_ms\"\n\"SET\",\"1000.5\",\"0.1\",\"0.25\"\n";
        assert_eq!(parse(csv, "set"), Some((1_000.5, 0.25)));
        assert_eq!(parse(csv, "get"), None);
        assert_eq!(parse("Could not connect", "set"), None);
    }

    #[test]
    fn cells_are_unique_and_set_precedes_get() {
        let keys: Vec<String> = cells().map(|cell| cell.keys()).collect();
        assert_eq!(keys.len(), 8);
        assert_eq!(
            keys[..2],
            ["set", "get"].map(|command| format!("command={command} connections=50 pipeline=1"))
        );
    }
}
