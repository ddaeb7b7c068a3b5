//! A program beside the one that is measured: a server, its load, the other side.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};

use super::spawn_on;

/// A program that is told things line by line and ends when it hears no more.
pub struct Program {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Program {
    /// On `cores`, its streams ours; what it complains goes where our own complaints go.
    pub fn start(cores: &[usize], mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = spawn_on(cores, &mut command)?;
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Ok(Program { input: child.stdin.take(), output, child })
    }

    /// The process's id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it has ended by itself.
    pub fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Asks it to end, by SIGTERM: for those that do not mind their standard input.
    pub fn terminate(&self) {
        // Not waited for yet, so the id is still this child's; should it be gone, it needs no
        // asking.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
    }

    /// Says a line to it.
    pub fn tell(&mut self, line: &str) -> Result<(), String> {
        let input = self.input.as_mut().expect("open until the end");
        writeln!(input, "{line}").map_err(|e| format!("gone: {e}"))
    }

    /// The next line that it says, unless it takes longer than anything that works does.
    pub fn hear_within(&mut self, patience: Duration) -> Result<String, String> {
        if self.output.buffer().is_empty() {
            let wait = Timespec {
                tv_sec: patience.as_secs() as i64,
                tv_nsec: patience.subsec_nanos().into(),
            };
            let mut output = [PollFd::new(self.output.get_ref(), PollFlags::IN)];
            if poll(&mut output, Some(&wait)).map_err(|e| e.to_string())? == 0 {
                return Err(format!("said nothing for {} s", patience.as_secs_f64()));
            }
        }
        self.hear()
    }

    /// The next line that it says.
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
    /// Lets it end, and hears the last that it says.
    pub fn last_word(&mut self) -> Result<String, String> {
        drop(self.input.take());
        self.hear()
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.input.take());
        // A server ends with its standard input; should one not, it must not outlive the benchmark.
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
    fn a_program_is_told_and_heard_and_ends() {
        let mut program = Program::start(&own_cores(), Command::new("cat")).unwrap();
        program.tell("one").unwrap();
        assert_eq!(program.hear().unwrap(), "one");
        drop(program);
        let mut silent = Program::start(&own_cores(), Command::new("cat")).unwrap();
        assert!(
            silent.hear_within(Duration::from_millis(10)).unwrap_err().contains("said nothing")
        );
        silent.tell("two").unwrap();
        assert_eq!(silent.hear_within(Duration::from_secs(30)).unwrap(), "two");
        let mut gone = Program::start(&own_cores(), Command::new("true")).unwrap();
        assert!(gone.hear().is_err());
    }
}
