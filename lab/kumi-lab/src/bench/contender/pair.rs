//! An echo server on the first core and its load generator on the last. Both live as long as
//! needed.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::{Entries, Memory, kernel_threads};
use nix::time::{clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;

use super::program::Program;
use super::{Contender, Programs, Trouble, own_cores};

const WARM_UP_MS: u64 = 300;

/// A server without connections.
pub struct Server {
    pub contender: Contender,
    program: Program,
    /// Ports on 127.0.0.1, in the server's order.
    pub ports: Vec<String>,
}

impl Server {
    pub fn start(contender: Contender, programs: &Programs, bench: &str) -> Result<Self, Trouble> {
        let mut program =
            Program::start(&own_cores()[..1], contender.command(programs, bench, 1)?)?;
        let said = program.hear().map_err(|e| format!("the server: {e}"))?;
        if let Some(why) = said.strip_prefix("refused: ") {
            return Err(Trouble::Refused(why.to_owned()));
        }
        let ports = said
            .strip_prefix("listening ")
            .ok_or_else(|| format!("the server printed {said:?}"))?;
        let ports = ports.split(' ').map(str::to_owned).collect();
        Ok(Server { contender, program, ports })
    }

    pub fn memory(&self) -> Result<Memory, String> {
        Memory::of(self.program.id()).map_err(|e| format!("the server's memory: {e}"))
    }

    /// CPU time so far in nanoseconds.
    pub fn cpu_time(&self) -> u64 {
        cpu_time(self.program.id())
    }

    /// CPU time of kernel threads with this name.
    pub fn cpu_time_of(&self, name: &str) -> u64 {
        cpu_time_of(self.program.id(), |comm| comm.trim_end() == name)
    }

    /// Returns whether there is a kernel thread with this name.
    pub fn has_thread(&self, name: &str) -> bool {
        let pid = self.program.id();
        kernel_threads(pid).unwrap_or_default().iter().any(|thread| {
            fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm"))
                .is_ok_and(|comm| comm.trim_end() == name)
        })
    }
}

/// A server and its load generator.
pub struct Pair {
    // Dropped first, so that the server sees the end of its connections.
    load: Program,
    pub server: Server,
}

/// Result of one slice of load.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// Number of replies within the slice, and its length in seconds.
    pub requests: f64,
    pub seconds: f64,
    /// Latency percentiles of all replies in microseconds.
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    /// Number of all replies, including those to requests that were outstanding at the end.
    pub all: f64,
    /// CPU time of the server for all of them, in nanoseconds.
    pub cpu: f64,
    /// Seconds until the last reply.
    pub took: f64,
}

impl Slice {
    pub fn rate(&self) -> f64 {
        self.requests / self.seconds
    }

    fn parse(said: &str, cpu: f64, took: f64) -> Result<Self, String> {
        let numbers: Vec<f64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[requests, seconds, p50, p99, p999, all] = numbers.as_slice() else {
            return Err(format!("the load printed {said:?}"));
        };
        Ok(Slice { requests, seconds, p50, p99, p999, all, cpu, took })
    }
}

impl Pair {
    /// Starts and warms up both processes.
    pub fn start(
        contender: Contender,
        programs: &Programs,
        connections: usize,
    ) -> Result<Self, Trouble> {
        let mut pair = Pair::connect(Server::start(contender, programs, "echo")?, connections)?;
        pair.slice(WARM_UP_MS)?;
        Ok(pair)
    }

    /// Opens connections without sending anything.
    pub fn connect(server: Server, connections: usize) -> Result<Self, String> {
        let port = &server.ports[0];
        let load = start_load("bench-load", &[port, &connections.to_string()])?;
        Ok(Pair { load, server })
    }

    /// Runs one slice of load. With 0 ms: one request over each connection.
    pub fn slice(&mut self, ms: u64) -> Result<Slice, String> {
        let (before, start) = (self.server.cpu_time(), Instant::now());
        let said = ask(&mut self.load, ms)?;
        let took = start.elapsed().as_secs_f64();
        Slice::parse(&said, self.server.cpu_time().saturating_sub(before) as f64, took)
    }

    /// Number of system calls of the server for each request. Measured in a separate slice, because
    /// counting slows the server down.
    pub fn entries(&mut self, ms: u64) -> Result<f64, Trouble> {
        let counted =
            Entries::of(self.server.program.id()).map_err(|e| Trouble::Refused(e.to_string()))?;
        let count = || counted.count().map_err(|e| format!("entries: {e}"));
        let before = count()?;
        let slice = self.slice(ms)?;
        Ok((count()? - before) as f64 / slice.all)
    }

    /// Ends both processes. Returns the server's last line and its process ID.
    pub fn end(mut self) -> (Result<String, String>, u32) {
        (self.server.program.last_word(), self.server.program.id())
    }
}

/// Starts a load generator of this program on the last core, and waits until it is connected.
pub fn start_load(name: &str, args: &[&str]) -> Result<Program, String> {
    let cores = own_cores();
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.arg(name).args(args);
    let mut load = Program::start(&cores[cores.len() - 1..], command)?;
    match load.hear().map_err(|e| format!("the load: {e}"))?.as_str() {
        "ready" => Ok(load),
        said => Err(format!("the load printed {said:?}")),
    }
}

/// Requests a slice of `ms` milliseconds and returns the load generator's reply.
pub fn ask(load: &mut Program, ms: u64) -> Result<String, String> {
    load.tell(&ms.to_string()).map_err(|e| format!("the load: {e}"))?;
    load.hear().map_err(|e| format!("the load: {e}"))
}

/// CPU time so far in nanoseconds, by the process's CPU clock: with kernel threads that have ended,
/// which /proc no longer shows. 0 for a process that has ended.
pub fn cpu_time(pid: u32) -> u64 {
    let clock = clock_getcpuclockid(Pid::from_raw(pid as i32)).and_then(clock_gettime);
    clock.map_or(0, |time| Duration::from(time).as_nanos() as u64)
}

fn cpu_time_of(pid: u32, is_meant: impl Fn(&str) -> bool) -> u64 {
    let Ok(threads) = kernel_threads(pid) else { return 0 };
    threads
        .iter()
        .filter(|thread| {
            fs::read_to_string(format!("/proc/{pid}/task/{thread}/comm"))
                .is_ok_and(|comm| is_meant(&comm))
        })
        .filter_map(|thread| {
            fs::read_to_string(format!("/proc/{pid}/task/{thread}/schedstat")).ok()
        })
        .filter_map(|text| text.split(' ').next()?.parse::<u64>().ok())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_counts_threads_that_have_ended() {
        let me = std::process::id();
        let before = cpu_time(me);
        let used = std::thread::spawn(move || {
            while cpu_time(me) - before < 1_000_000 {
                std::hint::black_box(kumihimo_bench_kit::work::spin(1, 1_000));
            }
            cpu_time(me)
        });
        let used = used.join().expect("no panic");
        assert!(cpu_time(me) >= used);
        // No process ID is above the kernel's PID_MAX_LIMIT.
        assert_eq!(cpu_time((4 << 20) + 1), 0);
        assert_eq!(cpu_time_of(me, |name| name == "nobody"), 0);
    }

    #[test]
    fn slice_is_parsed_from_the_loads_line() {
        let slice = Slice::parse("100 0.5 1 2 3 110", 1_100.0, 0.6).unwrap();
        assert_eq!((slice.rate(), slice.p999, slice.cpu / slice.all), (200.0, 3.0, 10.0));
        assert!(Slice::parse("load: gone", 0.0, 0.0).is_err());
    }
}
