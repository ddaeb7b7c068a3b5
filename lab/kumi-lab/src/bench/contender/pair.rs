//! An echo server on the first core and its load on the last, both alive as long as they are
//! wanted.

use std::fs;
use std::process::Command;
use std::time::Instant;

use kumihimo_bench_kit::{Entries, Memory, kernel_threads};

use super::program::Program;
use super::{Contender, Programs, Trouble, own_cores};

const WARM_UP_MS: u64 = 300;

/// A server, which nobody has connected to yet.
pub struct Server {
    pub contender: Contender,
    program: Program,
    /// The ports on which it listens, on 127.0.0.1, in its own order.
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
        let ports =
            said.strip_prefix("listening ").ok_or_else(|| format!("the server said {said:?}"))?;
        let ports = ports.split(' ').map(str::to_owned).collect();
        Ok(Server { contender, program, ports })
    }

    pub fn memory(&self) -> Result<Memory, String> {
        Memory::of(self.program.id()).map_err(|e| format!("the server's memory: {e}"))
    }

    /// Nanoseconds on a core so far, over all kernel threads.
    pub fn cpu_time(&self) -> u64 {
        cpu_time(self.program.id())
    }

    /// The same, of those that have this name.
    pub fn cpu_time_of(&self, name: &str) -> u64 {
        cpu_time_of(self.program.id(), |comm| comm.trim_end() == name)
    }
}

/// A server and its load.
pub struct Pair {
    // Dropped first, so that the server sees its connections close.
    load: Program,
    pub server: Server,
}

/// What a slice of the load came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slice {
    /// Replies within the slice, and its length in seconds.
    pub requests: f64,
    pub seconds: f64,
    /// Microseconds, of all replies.
    pub p50: f64,
    pub p99: f64,
    pub p999: f64,
    /// Replies in all: those too that were under way when it ended.
    pub all: f64,
    /// CPU time of the server, in nanoseconds, for all of them.
    pub cpu: f64,
    /// Seconds until the last of them was there.
    pub took: f64,
}

impl Slice {
    pub fn rate(&self) -> f64 {
        self.requests / self.seconds
    }

    fn parse(said: &str, cpu: f64, took: f64) -> Result<Self, String> {
        let numbers: Vec<f64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        let &[requests, seconds, p50, p99, p999, all] = numbers.as_slice() else {
            return Err(format!("the load said {said:?}"));
        };
        Ok(Slice { requests, seconds, p50, p99, p999, all, cpu, took })
    }
}

impl Pair {
    /// Both, warmed up.
    pub fn start(
        contender: Contender,
        programs: &Programs,
        connections: usize,
    ) -> Result<Self, Trouble> {
        let mut pair = Pair::connect(Server::start(contender, programs, "echo")?, connections)?;
        pair.slice(WARM_UP_MS)?;
        Ok(pair)
    }

    /// So many connections, on which nothing was sent yet.
    pub fn connect(server: Server, connections: usize) -> Result<Self, String> {
        let port = &server.ports[0];
        let load = start_load("bench-load", &[port, &connections.to_string()])?;
        Ok(Pair { load, server })
    }

    /// One slice of the load. With 0 ms: one request over each connection.
    pub fn slice(&mut self, ms: u64) -> Result<Slice, String> {
        let (before, start) = (self.server.cpu_time(), Instant::now());
        let said = ask(&mut self.load, ms)?;
        let took = start.elapsed().as_secs_f64();
        Slice::parse(&said, self.server.cpu_time().saturating_sub(before) as f64, took)
    }

    /// How often the server enters the kernel for a request, over a slice of its own: counting is
    /// not for nothing.
    pub fn entries(&mut self, ms: u64) -> Result<f64, Trouble> {
        let counted =
            Entries::of(self.server.program.id()).map_err(|e| Trouble::Refused(e.to_string()))?;
        let count = || counted.count().map_err(|e| format!("entries: {e}"));
        let before = count()?;
        let slice = self.slice(ms)?;
        Ok((count()? - before) as f64 / slice.all)
    }

    /// Ends both. What the server said last, and which process it was.
    pub fn end(mut self) -> (Result<String, String>, u32) {
        (self.server.program.last_word(), self.server.program.id())
    }
}

/// A load of ours on the last core, connected.
pub fn start_load(name: &str, args: &[&str]) -> Result<Program, String> {
    let cores = own_cores();
    let mut command = Command::new(std::env::current_exe().map_err(|e| e.to_string())?);
    command.arg(name).args(args);
    let mut load = Program::start(&cores[cores.len() - 1..], command)?;
    match load.hear().map_err(|e| format!("the load: {e}"))?.as_str() {
        "ready" => Ok(load),
        said => Err(format!("the load said {said:?}")),
    }
}

/// What a load says of a slice of so many milliseconds.
pub fn ask(load: &mut Program, ms: u64) -> Result<String, String> {
    load.tell(&ms.to_string()).map_err(|e| format!("the load: {e}"))?;
    load.hear().map_err(|e| format!("the load: {e}"))
}

/// Nanoseconds on a core so far, over all kernel threads of a process.
pub fn cpu_time(pid: u32) -> u64 {
    cpu_time_of(pid, |_| true)
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
    fn our_own_cpu_time_is_counted() {
        let me = std::process::id();
        assert!(cpu_time(me) > 0);
        assert_eq!(cpu_time_of(me, |name| name == "nobody"), 0);
    }

    #[test]
    fn a_slice_is_what_the_load_said() {
        let slice = Slice::parse("100 0.5 1 2 3 110", 1_100.0, 0.6).unwrap();
        assert_eq!((slice.rate(), slice.p999, slice.cpu / slice.all), (200.0, 3.0, 10.0));
        assert!(Slice::parse("load: gone", 0.0, 0.0).is_err());
    }
}
