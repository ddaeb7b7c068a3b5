//! `http`: servers of HTTP/1.1, all alive at the same time on the first core. wrk drives one at a
//! time from the last core, slice by slice in random order.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use kumihimo_bench_kit::raise_descriptors;

use crate::bench::contender::installed::installed;
use crate::bench::contender::pair::Server;
use crate::bench::contender::{Missing, Programs, Trouble, output_on, own_cores};
use crate::bench::plan::order::Order;
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;

const BENCH: &str = "http";
const LOAD: &str = "wrk";
const CONNECTIONS: [usize; 2] = [100, 5_000];
/// Length of a slice in seconds. It begins with the accepting of the connections, which is to be a
/// small part of it.
const SLICE: &str = "3s";
/// Time between two looks at the server's memory.
const LOOK: Duration = Duration::from_millis(50);

/// Runs every cell.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    if let Err(trouble) = installed(LOAD, "apt-get install wrk") {
        missing.note(BENCH, trouble);
        return Vec::new();
    }
    // The servers and the load inherit the limit.
    raise_descriptors();
    let mut servers = Vec::new();
    for contender in plan::http_servers(options) {
        let label = contender.describe(BENCH, 1);
        eprintln!("  {label}");
        match Server::start(contender, programs, BENCH) {
            Ok(server) => servers.push(Some(server)),
            Err(trouble) => missing.note(&label, trouble),
        }
    }
    let mut samples = Vec::new();
    let mut order = Order::new(options.seed);
    for _ in 0..options.runs {
        for connections in CONNECTIONS {
            for i in order.round(servers.len()) {
                let Some(server) = &servers[i] else { continue };
                match slice(server, connections) {
                    Ok(some) => samples.extend(some),
                    Err(trouble) => {
                        let label = server.contender.describe(BENCH, 1);
                        missing.note(&format!("{label} connections={connections}"), trouble);
                        servers[i] = None;
                    }
                }
            }
        }
    }
    samples
}

/// The samples of a slice: the rate, latencies, CPU time of a request, and the most resident
/// memory.
fn slice(server: &Server, connections: usize) -> Result<Vec<Sample>, Trouble> {
    let cores = own_cores();
    let url = format!("http://127.0.0.1:{}/hello", server.ports[0]);
    let mut load = Command::new(LOAD);
    load.args(["--threads", "1", "--connections", &connections.to_string()]);
    load.args(["--duration", SLICE, "--timeout", "30s", "--latency", &url]);
    let before = server.cpu_time();
    let is_over = AtomicBool::new(false);
    let (said, rss) = std::thread::scope(|scope| {
        let memory = scope.spawn(|| {
            let mut most = 0;
            while !is_over.load(Ordering::Relaxed) {
                most = most.max(server.memory()?.rss);
                std::thread::sleep(LOOK);
            }
            Ok::<_, String>(most)
        });
        let said = output_on(&cores[cores.len() - 1..], &mut load);
        is_over.store(true, Ordering::Relaxed);
        Ok::<_, Trouble>((said?, memory.join().expect("no panic")?))
    })?;
    let cpu = server.cpu_time().saturating_sub(before) as f64;
    let load = Load::parse(&said)?;
    let row = [
        ("rps", load.rate, "1/s"),
        ("p50", load.p50, "us"),
        ("p99", load.p99, "us"),
        ("cpu", cpu / load.requests / 1e3, "us"),
        ("rss", rss as f64, "B"),
    ];
    let identity = server.contender.identity(BENCH, 1);
    let sample = |(metric, value, unit)| {
        Sample::parse(&format!("{metric} {value} {unit} connections={connections}"), &identity)
    };
    Ok(row.into_iter().map(sample).collect::<Result<_, _>>()?)
}

/// What wrk reports: requests, their number each second, and latencies in microseconds.
#[derive(Debug, PartialEq)]
struct Load {
    requests: f64,
    rate: f64,
    p50: f64,
    p99: f64,
}

impl Load {
    /// Parses the output of `wrk --latency`. An output with errors is a failure: a server that
    /// refuses work would win.
    fn parse(said: &str) -> Result<Load, String> {
        let failed = |line: &&str| line.contains("Socket errors") || line.contains("Non-2xx");
        if let Some(line) = said.lines().find(failed) {
            return Err(format!("{LOAD}: {}", line.trim()));
        }
        let words: Vec<Vec<&str>> =
            said.lines().map(|line| line.split_whitespace().collect()).collect();
        let find = |of: &dyn Fn(&[&str]) -> Option<f64>| {
            words.iter().find_map(|line| of(line)).ok_or_else(|| format!("{LOAD} printed {said:?}"))
        };
        Ok(Load {
            requests: find(&|line| match line {
                [count, "requests", "in", ..] => count.parse().ok(),
                _ => None,
            })?,
            rate: find(&|line| match line {
                ["Requests/sec:", rate] => rate.parse().ok(),
                _ => None,
            })?,
            p50: find(&|line| match line {
                ["50%", time] => microseconds(time),
                _ => None,
            })?,
            p99: find(&|line| match line {
                ["99%", time] => microseconds(time),
                _ => None,
            })?,
        })
    }
}

/// A time as wrk prints it: `1.23ms`.
fn microseconds(time: &str) -> Option<f64> {
    let unit = time.find(|c: char| c.is_ascii_alphabetic())?;
    let (number, unit) = time.split_at(unit);
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "Running 3s test @ http://127.0.0.1:80/hello
  1 threads and 100 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     2.55ms  560.37us  16.13ms   90.31%
    Req/Sec    39.32k     1.75k   42.02k    80.00%
  Latency Distribution
     50%    2.44ms
     75%    2.67ms
     90%    2.98ms
     99%    1.20s
  117427 requests in 3.00s, 6.27MB read
Requests/sec:  39097.20
Transfer/sec:      2.09MB
";

    #[test]
    fn output_of_wrk_is_parsed() {
        let load = Load { requests: 117_427.0, rate: 39_097.2, p50: 2_440.0, p99: 1_200_000.0 };
        assert_eq!(Load::parse(SAID).unwrap(), load);
    }

    #[test]
    fn output_with_errors_or_without_figures_is_a_failure() {
        let errors = "  Socket errors: connect 0, read 7, write 0, timeout 0";
        assert_eq!(
            Load::parse(&format!("{SAID}{errors}\n")).unwrap_err(),
            format!("wrk: {}", errors.trim())
        );
        let refused = format!("{SAID}  Non-2xx or 3xx responses: 12\n");
        assert!(Load::parse(&refused).unwrap_err().contains("12"));
        assert!(Load::parse("unable to connect").unwrap_err().contains("unable to connect"));
    }

    #[test]
    fn times_have_units() {
        let times = ["0.00us", "560.37us", "2.5ms", "1.20s", "1.00m"].map(microseconds);
        assert_eq!(times, [0.0, 560.37, 2_500.0, 1.2e6, 60e6].map(Some));
        assert_eq!(["", "12", "12h"].map(microseconds), [None; 3]);
    }
}
