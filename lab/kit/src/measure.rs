//! Output lines, the process's CPU clock, and memory use as the kernel reports it.

use std::fs;
use std::time::Duration;

use rustix::process::{Resource, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};

/// Prints one sample. `keys` is printed unchanged: `"order=child"` (identity) or
/// `"alive_max:=100000"` (note), separated by blanks.
pub fn sample(metric: &str, value: f64, unit: &str, keys: &str) {
    assert!(value.is_finite(), "{metric}: {value} is not a finite number");
    println!("{metric} {value} {unit} {keys}");
}

/// Nanoseconds for each of `count` operations that took `elapsed` together.
#[must_use]
pub fn per(elapsed: Duration, count: usize) -> f64 {
    elapsed.as_nanos() as f64 / count as f64
}

/// Raises this process's soft limit on descriptors (`ulimit -n`) to the hard limit, and returns the
/// resulting limit. Ten thousand connections need as many descriptors.
pub fn raise_descriptors() -> u64 {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // If raising is refused the limit stays, and `accept` and `connect` report that it is too low.
    let _ = setrlimit(Resource::Nofile, limit);
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// User and system CPU time of this process.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(Duration);

impl CpuClock {
    /// Reads the clock.
    #[must_use]
    pub fn now() -> Self {
        let t = clock_gettime(ClockId::ProcessCPUTime);
        CpuClock(Duration::new(t.tv_sec as u64, t.tv_nsec as u32))
    }

    /// CPU time used since the reading.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        CpuClock::now().0.saturating_sub(self.0)
    }
}

/// Memory use in bytes at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Memory {
    /// Resident in the process (`VmRSS`).
    pub rss: u64,
    /// Maximum resident memory of the process (`VmHWM`).
    pub peak_rss: u64,
    /// Unreclaimable kernel memory of the *whole machine*: slab, kernel stacks, page tables. Only
    /// differences on an otherwise idle machine are meaningful.
    pub kernel: u64,
}

impl Memory {
    /// Reads `/proc/self/status` and `/proc/meminfo`.
    ///
    /// # Panics
    /// If /proc is not mounted.
    #[must_use]
    pub fn now() -> Self {
        Memory::of(std::process::id()).expect("/proc/self/status")
    }

    /// As [`now`](Memory::now), for another process.
    ///
    /// # Errors
    /// If there is no such process.
    ///
    /// # Panics
    /// If /proc is not mounted.
    pub fn of(pid: u32) -> std::io::Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let meminfo = fs::read_to_string("/proc/meminfo").expect("/proc/meminfo");
        Ok(Memory {
            rss: kilobytes(&status, "VmRSS:"),
            peak_rss: kilobytes(&status, "VmHWM:"),
            kernel: ["SUnreclaim:", "KernelStack:", "PageTables:"]
                .iter()
                .map(|line| kilobytes(&meminfo, line))
                .sum(),
        })
    }

    /// Growth of `rss` and `kernel` since `before`, divided by `count`; 0 if it shrank.
    #[must_use]
    pub fn each_since(&self, before: &Memory, count: usize) -> (f64, f64) {
        let each = |now: u64, then: u64| now.saturating_sub(then) as f64 / count as f64;
        (each(self.rss, before.rss), each(self.kernel, before.kernel))
    }
}

fn kilobytes(text: &str, name: &str) -> u64 {
    text.lines()
        .find_map(|line| line.strip_prefix(name))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .map_or(0, |kb| kb * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_of_proc_is_parsed() {
        assert_eq!(kilobytes("VmHWM:\t 12 kB\nVmRSS:\t 10 kB\n", "VmRSS:"), 10_240);
        assert_eq!(kilobytes("", "VmRSS:"), 0);
    }

    #[test]
    fn memory_of_this_process_is_read() {
        let m = Memory::now();
        assert!(m.rss > 0 && m.peak_rss >= m.rss / 2 && m.kernel > 0);
    }
}
