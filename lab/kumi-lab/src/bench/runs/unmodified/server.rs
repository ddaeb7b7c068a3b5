//! A running server: started on the first core, measured from outside with all its processes, and
//! ended by process ID.

use std::fs;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::{Memory, count_kernel_threads};
use rustix::process::{Pid, Signal, kill_process};

use super::prepare;
use super::setup::Setup;
use crate::bench::contender::pair::cpu_time;
use crate::bench::contender::{Trouble, own_cores, spawn_on};
use crate::bench::load::requests::probe;
use crate::bench::plan::unmodified::Program;
use crate::bench::runs::servers::usage::Family;

/// Time limit for a server's start.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time between two attempts to reach a starting server.
const PAUSE: Duration = Duration::from_millis(50);
/// Time for an orderly end.
const GRACE: Duration = Duration::from_secs(5);
/// Ports below those that the kernel gives to outgoing connections.
const PORTS: std::ops::Range<u16> = 20_000..32_000;

/// A server that is ended when dropped, with all processes that it has started.
pub struct Server {
    child: Child,
    pub port: u16,
    /// Notes of its rows.
    pub remarks: String,
}

/// What all processes of a server have used so far, and what they have now.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Usage {
    processes: Vec<Identified>,
    /// CPU time, including that of ended kernel threads.
    pub cpu: Duration,
    /// Resident memory in bytes. Pages that processes share count for each of them.
    pub rss: u64,
    pub kernel_threads: usize,
}

impl Usage {
    /// CPU time since `before`.
    ///
    /// # Errors
    /// If a process has ended in between: its CPU time is lost, and its work may have failed.
    pub fn since(&self, before: &Usage) -> Result<Duration, String> {
        match before.processes.iter().find(|process| !self.processes.contains(process)) {
            Some(process) => Err(format!("process {} of the server has ended", process.pid)),
            None => Ok(self.cpu.saturating_sub(before.cpu)),
        }
    }

    /// Numbers of a server without processes, for tests.
    #[cfg(test)]
    pub fn of(cpu: Duration, rss: u64, kernel_threads: usize) -> Usage {
        Usage { processes: Vec::new(), cpu, rss, kernel_threads }
    }
}

/// A process, by its ID and the time at which it was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identified {
    pid: u32,
    started: u64,
}

/// Fields of /proc/PID/stat.
struct Stat {
    /// Ended, and not yet reaped.
    is_zombie: bool,
    started: u64,
}

impl Server {
    /// Starts a server for up to `connections` connections, and waits until it answers a request.
    pub fn start(
        setup: &Setup,
        program: Program,
        runtime: &'static str,
        connections: usize,
    ) -> Result<Server, Trouble> {
        let port = free_port()?;
        let prepared = prepare::server(setup, program, runtime, port, connections)?;
        let log = prepared.folder.join("log");
        let output = fs::File::create(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        let errors = output.try_clone().map_err(|e| format!("{}: {e}", log.display()))?;
        let mut command = prepared.command;
        command.stdin(Stdio::null()).stdout(output).stderr(errors);
        let child = spawn_on(&own_cores()[..1], &mut command)?;
        let mut server = Server { child, port, remarks: prepared.remarks };
        server.await_answer(program, &log)?;
        Ok(server)
    }

    fn await_answer(&mut self, program: Program, log: &Path) -> Result<(), String> {
        let begun = Instant::now();
        loop {
            let answer = probe(prepare::protocol(program), self.port);
            let Err(error) = answer else { return Ok(()) };
            let ended = self.child.try_wait().map_err(|e| e.to_string())?;
            if let Some(status) = ended {
                return Err(format!("the server ended, {status}: {}", end_of(log)));
            }
            if begun.elapsed() > PATIENCE {
                return Err(format!("the server does not answer: {error}: {}", end_of(log)));
            }
            thread::sleep(PAUSE);
        }
    }

    /// Counters of the server and of all its descendants.
    pub fn usage(&self) -> Result<Usage, String> {
        let mut usage = Usage::default();
        for process in family(self.child.id()) {
            if stat(process.pid).is_none_or(|stat| stat.is_zombie) {
                continue;
            }
            usage.processes.push(process);
            usage.cpu += Duration::from_nanos(cpu_time(process.pid));
            usage.rss += Memory::of(process.pid).map_or(0, |memory| memory.rss);
            usage.kernel_threads += count_kernel_threads(process.pid).unwrap_or(0);
        }
        match usage.processes.first() {
            Some(first) if first.pid == self.child.id() => Ok(usage),
            _ => Err("the server has ended".to_owned()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let family = family(self.child.id());
        // The child has not been reaped, so the ID is still its own.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let begun = Instant::now();
        while matches!(self.child.try_wait(), Ok(None)) && begun.elapsed() < GRACE {
            thread::sleep(PAUSE);
        }
        for process in family {
            // A process that has ended may have left its ID to another one, which is not ended.
            if stat(process.pid).is_some_and(|stat| stat.started == process.started)
                && let Some(pid) = Pid::from_raw(process.pid as i32)
            {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = self.child.wait();
    }
}

/// A port that nothing listens on. The kernel gives ports of this range to no outgoing connection.
fn free_port() -> Result<u16, String> {
    let count = u32::from(PORTS.end - PORTS.start);
    let first = std::process::id() % count;
    (0..count)
        .map(|i| PORTS.start + ((first + i) % count) as u16)
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .ok_or_else(|| format!("no port of {PORTS:?} is free"))
}

/// The process and its descendants, those that have ended and are not yet reaped included.
fn family(root: u32) -> Vec<Identified> {
    let identified = |&pid: &u32| Some(Identified { pid, started: stat(pid)?.started });
    Family::of(Some(root)).ids().iter().filter_map(identified).collect()
}

fn stat(pid: u32) -> Option<Stat> {
    parse_stat(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses a line of proc_pid_stat(5). The name in parentheses may contain any character.
fn parse_stat(line: &str) -> Option<Stat> {
    let fields: Vec<&str> = line.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
    Some(Stat { is_zombie: *fields.first()? == "Z", started: number(22)? })
}

/// The last lines of a log.
fn end_of(log: &Path) -> String {
    let text = match fs::read(log) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => error.to_string(),
    };
    let mut lines: Vec<&str> = text.lines().rev().take(4).collect();
    lines.reverse();
    lines.join(" / ")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn stat_is_parsed_after_the_name() {
        let line = "7 (a) b (c) S 3 7 7 0 -1 0 0 0 0 0 40 2 0 0 20 0 1 0 555 0 0";
        let stat = parse_stat(line).unwrap();
        assert_eq!(stat.started, 555);
        assert!(!stat.is_zombie && parse_stat(&line.replace("S", "Z")).unwrap().is_zombie);
        assert!(parse_stat("7 (a").is_none());
    }

    #[test]
    fn server_that_has_ended_is_an_error() {
        let child = Command::new("sleep").arg("600").spawn().unwrap();
        let server = Server { child, port: 0, remarks: String::new() };
        let usage = server.usage().unwrap();
        assert!(usage.since(&usage).is_ok());
        let pid = Pid::from_child(&server.child);
        kill_process(pid, Signal::KILL).unwrap();
        let begun = Instant::now();
        while !stat(server.child.id()).unwrap().is_zombie {
            assert!(begun.elapsed() < PATIENCE);
            thread::sleep(PAUSE);
        }
        assert_eq!(server.usage().unwrap_err(), "the server has ended");
        let why = Usage::default().since(&usage).unwrap_err();
        assert_eq!(why, format!("process {} of the server has ended", server.child.id()));
    }

    #[test]
    fn descendants_are_counted_and_ended() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "sleep 600 & sleep 600 & wait"]).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        let server = Server { child, port: 0, remarks: String::new() };
        let begun = Instant::now();
        let root = server.child.id();
        while family(root).len() < 3 {
            assert!(begun.elapsed() < PATIENCE, "{:?}", family(root));
            thread::sleep(PAUSE);
        }
        let usage = server.usage().unwrap();
        assert!(usage.kernel_threads >= 3 && usage.rss > 0);
        let all = family(root);
        drop(server);
        let is_left = |process: &&Identified| {
            // An orphan that has ended exists until its new parent reaps it.
            stat(process.pid).is_some_and(|stat| stat.started == process.started && !stat.is_zombie)
        };
        while all.iter().any(|process| is_left(&process)) {
            assert!(begun.elapsed() < PATIENCE);
            thread::sleep(PAUSE);
        }
    }
}
