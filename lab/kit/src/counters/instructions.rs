//! Instructions executed by a child process, counted by the processor.

use std::io;

use super::counter::{Counter, HARDWARE, INHERIT, USER_ONLY};

/// `PERF_COUNT_HW_INSTRUCTIONS`.
const INSTRUCTIONS: u64 = 1;

/// Counts the user-mode instructions of the processes that the calling thread starts from now on.
///
/// Source: perf_event_open(2). Virtual machines often have no hardware counters; opening one then
/// fails with `ENOENT` or `EOPNOTSUPP`.
#[derive(Debug)]
pub struct Instructions(Counter);

impl Instructions {
    /// Starts to count. The calling thread's own instructions count as well, so a short-lived
    /// thread that only starts the child should be the caller.
    ///
    /// # Errors
    /// If there is no hardware counter, or no permission (`kernel.perf_event_paranoid`).
    pub fn of_children() -> io::Result<Instructions> {
        Counter::open(HARDWARE, INSTRUCTIONS, INHERIT | USER_ONLY, 0).map(Instructions)
    }

    /// Instructions so far, including those of ended processes.
    ///
    /// # Errors
    /// As read(2).
    pub fn count(&self) -> io::Result<u64> {
        self.0.read()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::process::Command;

    use super::super::counter::SOFTWARE;

    use super::*;

    /// `PERF_COUNT_SW_TASK_CLOCK`: exists without hardware counters and is inherited the same way.
    const TASK_CLOCK: u64 = 1;

    #[test]
    fn child_is_counted_after_its_starting_thread_has_ended() {
        let start = || {
            let counter = Counter::open(SOFTWARE, TASK_CLOCK, INHERIT, 0)?;
            let script = "i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done";
            Ok::<_, io::Error>((counter, Command::new("sh").args(["-c", script]).spawn()?))
        };
        let (counter, mut child) = match std::thread::spawn(start).join().unwrap() {
            Ok(started) => started,
            Err(e) => {
                let name = "child_is_counted_after_its_starting_thread_has_ended";
                // Written past libtest's capture: xtask counts these lines.
                let line = format!("\n[skip] {name}: {e}\n");
                return io::stderr().write_all(line.as_bytes()).expect("standard error is open");
            }
        };
        assert!(child.wait().unwrap().success());
        // Twenty thousand rounds of a shell take far longer than a millisecond.
        assert!(counter.read().unwrap() > 1_000_000, "{}", counter.read().unwrap());
    }
}
