//! Resource usage of a server with all its processes: CPU time, context switches, memory, kernel
//! threads.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::bench::contender::pair::cpu_time;
use crate::bench::runs::rpc::switches;

/// Interval between counts of kernel threads.
const LOOK: Duration = Duration::from_millis(20);

/// A server process and its descendants.
#[derive(Clone)]
pub struct Family(Vec<u32>);

/// Usage so far.
#[derive(Clone, Copy, Default)]
pub struct Usage {
    /// CPU time in milliseconds, including kernel threads that have ended.
    pub cpu_ms: f64,
    /// Number of context switches of the living kernel threads.
    pub switches: f64,
}

/// Usage at one moment.
#[derive(Clone, Copy, Default)]
pub struct Resources {
    pub kernel_threads: f64,
    /// Megabytes, where shared memory is divided by its users (smaps_rollup of proc(5)).
    pub pss: f64,
}

impl Family {
    /// The family of `server`; empty if the kernel serves.
    pub fn of(server: Option<u32>) -> Family {
        let mut all: Vec<u32> = server.into_iter().collect();
        let parents = parents();
        let mut next = 0;
        while let Some(&parent) = all.get(next) {
            all.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
            next += 1;
        }
        Family(all)
    }

    /// Process IDs, each parent before its children.
    pub fn ids(&self) -> &[u32] {
        &self.0
    }

    /// The family of two processes.
    pub fn both(one: u32, other: u32) -> Family {
        Family(vec![one, other])
    }

    pub fn usage(&self) -> Usage {
        Usage {
            cpu_ms: self.0.iter().map(|&pid| cpu_time(pid) as f64 / 1e6).sum(),
            switches: self.0.iter().map(|&pid| switches(pid) as f64).sum(),
        }
    }

    pub fn resources(&self) -> Resources {
        let status =
            |pid: u32| fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let memory =
            |pid: u32| fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).unwrap_or_default();
        Resources {
            kernel_threads: self.0.iter().map(|&pid| number(&status(pid), "Threads:")).sum(),
            pss: self.0.iter().map(|&pid| number(&memory(pid), "Pss:") / 1e3).sum(),
        }
    }
}

impl Usage {
    /// Usage since `before`.
    pub fn since(self, before: Usage) -> Usage {
        Usage {
            cpu_ms: (self.cpu_ms - before.cpu_ms).max(0.0),
            switches: (self.switches - before.switches).max(0.0),
        }
    }
}

/// All processes with their parents: the fourth field of /proc/PID/stat, after a name that may
/// contain any characters.
fn parents() -> Vec<(u32, u32)> {
    let of = |entry: fs::DirEntry| {
        let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        Some((pid, rest.split_whitespace().nth(1)?.parse().ok()?))
    };
    fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(of).collect()
}

fn number(text: &str, name: &str) -> f64 {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|rest| rest.split_whitespace().next()?.parse().ok()).unwrap_or(0.0)
}

/// Counts a family's kernel threads periodically.
pub struct Watch {
    over: Arc<AtomicBool>,
    threads: Arc<AtomicU64>,
    looking: JoinHandle<()>,
    family: Family,
}

impl Watch {
    pub fn begin(family: &Family) -> Watch {
        let (over, threads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let looking = {
            let (over, threads, family) = (over.clone(), threads.clone(), family.clone());
            thread::spawn(move || {
                while !over.load(Relaxed) {
                    let status = |pid: &u32| {
                        fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default()
                    };
                    let now: f64 =
                        family.0.iter().map(|pid| number(&status(pid), "Threads:")).sum();
                    threads.fetch_max(now as u64, Relaxed);
                    thread::sleep(LOOK);
                }
            })
        };
        Watch { over, threads, looking, family: family.clone() }
    }

    /// The maximum number of kernel threads, and the memory at the end.
    pub fn end(self) -> Resources {
        self.over.store(true, Relaxed);
        // The thread cannot panic, and its counts are valid anyway.
        let _ = self.looking.join();
        let now = self.family.resources();
        Resources {
            kernel_threads: now.kernel_threads.max(self.threads.load(Relaxed) as f64),
            ..now
        }
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn family_includes_descendants() {
        let mut shell = Command::new("sh")
            .args(["-c", "sleep 60 & read line; kill $!"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let mut family = Family::of(Some(shell.id()));
        while family.0.len() < 2 {
            assert!(shell.try_wait().unwrap().is_none(), "the shell has ended");
            family = Family::of(Some(shell.id()));
        }
        let resources = Watch::begin(&family).end();
        assert!(resources.kernel_threads >= 2.0 && resources.pss > 0.0);
        drop(shell.stdin.take());
        shell.wait().unwrap();
        assert_eq!(Family::of(None).resources().kernel_threads, 0.0);
    }

    #[test]
    fn computing_uses_cpu_time() {
        let family = Family(vec![std::process::id()]);
        let before = family.usage();
        let mut x = 1;
        while family.usage().since(before).cpu_ms < 1.0 {
            x = kumihimo_bench_kit::work::spin(x, 10_000);
        }
        assert_ne!(x, 0);
    }
}
