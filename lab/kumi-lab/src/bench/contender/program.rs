//! A process beside the measured one: a server, its load generator, or a peer.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::spawn_on;

/// A process that reads commands line by line and ends with its standard input.
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// Starts a program on `cores` with pipes. Its standard error is inherited.
    pub fn start(cores: &[usize], mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn_on(cores, &mut command)?;
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Program { input: child.stdin.take(), output, child })
    }

    /// Process ID.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Sends SIGTERM, for programs that do not end with their standard input.
    pub fn terminate(&self) {
        // The child has not been reaped, so the ID is still its own. An error means that it has
        // ended.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Sends a line to the process.
    pub fn tell(&mut self, line: &str) -> Result<(), String> {
        let input = self.input.as_mut().expect("open until the end");
        writeln!(input, "{line}").map_err(|e| format!("gone: {e}"))
    }

    /// Reads the next line of output, with a time limit.
    pub fn hear_within(&mut self, patience: Duration) -> Result<String, String> {
        if self.output.buffer().is_empty() {
            let wait = Timespec {
                tv_sec: patience.as_secs() as i64,
                tv_nsec: patience.subsec_nanos().into(),
            };
            let mut output = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
            if poll(&mut output, Some(&wait)).map_err(|e| e.to_string())? == 0 {
                return Err(format!("printed nothing for {} s", patience.as_secs_f64()));
            }
        }
        self.hear()
    }

    /// Reads the next line of output.
    pub fn hear(&mut self) -> Result<String, String> {
        let mut line = String::new();
        match self.output.read_line(&mut line) {
            Ok(0) => Err("ended too early".to_owned()),
            Ok(_) => Ok(line.trim().to_owned()),
            Err(e) => Err(e.to_string()),
        }
    }
}

impl Program {
    /// Closes the process's standard input and reads its last line.
    pub fn last_word(&mut self) -> Result<String, String> {
        drop(self.input.take());
        self.hear()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        // A server ends with its standard input. If it does not, it must not outlive the benchmark.
        for _ in 0..100 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::super::own_cores;
    use super::*;

    #[test]
    fn program_reads_lines_writes_lines_and_ends() {
        let mut program = Program::start(&own_cores(), Command::new("cat")).unwrap();
        program.tell("one").unwrap();
        assert_eq!(program.hear().unwrap(), "one");
        drop(program);
        let mut silent = Program::start(&own_cores(), Command::new("cat")).unwrap();
        assert!(
            silent.hear_within(Duration::from_millis(10)).unwrap_err().contains("printed nothing")
        );
        silent.tell("two").unwrap();
        assert_eq!(silent.hear_within(Duration::from_secs(30)).unwrap(), "two");
        let mut gone = Program::start(&own_cores(), Command::new("true")).unwrap();
        assert!(gone.hear().is_err());
    }
}
