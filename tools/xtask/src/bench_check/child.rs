//! A measured program: starts it on given cores, reads its output by line, and reports its errors.

#[cfg(test)]
mod tests;

use std::ffi::OsStr;
use std::fmt;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use kumihimo_bench_kit::Instructions;
use nix::time::{clock_getcpuclockid, clock_gettime};
use rustix::process::{Pid, Signal, kill_process, setpriority_process};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Timeout of every step of a measurement. A longer wait means a hang.
pub const PATIENCE: Duration = Duration::from_secs(60);
/// Time for a program to exit after a request.
const END: Duration = Duration::from_secs(5);
/// Interval between checks for a program's exit.
const LOOK: Duration = Duration::from_millis(1);
/// Priority of measured programs, if permitted, so that the machine's daemons run after them. The
/// load of `stall` runs at -20, above them.
const NICE: i32 = -15;
/// Maximum number of lines of an error output that are repeated in a message.
const COMPLAINT: usize = 4;

/// Why a measurement has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// The build does not have this benchmark, option or metric.
    Missing(String),
    /// The machine lacks a feature that the benchmark needs.
    Refused(String),
    /// The program failed, hung or printed unexpected output.
    Failed(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Trouble::Missing(why) | Trouble::Refused(why) | Trouble::Failed(why)) = self;
        f.write_str(why)
    }
}

/// Errors of the driver itself.
impl From<String> for Trouble {
    fn from(why: String) -> Trouble {
        Trouble::Failed(why)
    }
}

/// Cores on which a program runs, among those in `bench-check`'s own affinity mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cores {
    /// The first core.
    First,
    /// The last few cores, because interrupts tend to arrive at the first one.
    Last(usize),
    /// All cores.
    All,
}

impl Cores {
    fn set(self) -> Result<CpuSet, String> {
        let own = sched_getaffinity(None).map_err(|e| format!("sched_getaffinity: {e}"))?;
        let all: Vec<usize> = (0..CpuSet::MAX_CPU).filter(|&core| own.is_set(core)).collect();
        let chosen = match self {
            Cores::First => &all[..1.min(all.len())],
            Cores::Last(count) => &all[all.len().saturating_sub(count)..],
            Cores::All => &all[..],
        };
        let mut set = CpuSet::new();
        chosen.iter().for_each(|&core| set.set(core));
        Ok(set)
    }

    /// Moves the calling thread to these cores and sets its priority to that of measured programs.
    /// Its children inherit both.
    pub fn enter(self) -> Result<(), String> {
        sched_setaffinity(None, &self.set()?).map_err(|e| format!("sched_setaffinity: {e}"))?;
        // Without the privilege to raise priorities, all programs compete alike.
        let _ = setpriority_process(None, NICE);
        Ok(())
    }
}

/// A running program, terminated when dropped.
#[derive(Debug)]
pub struct Running {
    child: Child,
    /// The command line, for errors.
    line: String,
    input: Option<ChildStdin>,
    output: Receiver<String>,
    complaint: Option<JoinHandle<String>>,
    instructions: Option<Instructions>,
}

/// The command line as a user types it.
pub fn line_of(command: &Command) -> String {
    let words = [command.get_program()].into_iter().chain(command.get_args());
    words.map(OsStr::to_string_lossy).collect::<Vec<_>>().join(" ")
}

impl Running {
    /// Starts `command` on `cores`.
    pub fn start(mut command: Command, cores: Cores) -> Result<Running, Trouble> {
        let line = line_of(&command);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // A separate thread, because the child inherits affinity, priority and counter from it.
        let starter = thread::spawn(move || {
            cores.enter()?;
            let instructions = Instructions::of_children().ok();
            Ok::<_, String>((command.spawn().map_err(|e| e.to_string())?, instructions))
        });
        let started = starter.join().map_err(|_| "the starting thread panicked".to_owned());
        let (mut child, instructions) = started
            .and_then(|started| started)
            .map_err(|why| Trouble::Failed(format!("cannot start `{line}`: {why}")))?;
        let output = BufReader::new(child.stdout.take().expect("piped"));
        let mut errors = child.stderr.take().expect("piped");
        let (send, receive) = mpsc::channel();
        thread::spawn(move || {
            output.lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        let complaint = thread::spawn(move || {
            let mut text = Vec::new();
            let _ = errors.read_to_end(&mut text);
            String::from_utf8_lossy(&text).into_owned()
        });
        let input = child.stdin.take();
        Ok(Running {
            child,
            line,
            input,
            output: receive,
            complaint: Some(complaint),
            instructions,
        })
    }

    /// Writes a line to the program's standard input.
    pub fn tell(&mut self, text: &str) -> Result<(), Trouble> {
        let input = self.input.as_mut().expect("open until the end");
        match writeln!(input, "{text}") {
            Ok(()) => Ok(()),
            Err(_) => Err(self.ended()),
        }
    }

    /// Reads the next line of the program's output.
    pub fn hear(&mut self) -> Result<String, Trouble> {
        match self.output.recv_timeout(PATIENCE) {
            Ok(line) => Ok(line),
            Err(RecvTimeoutError::Timeout) => Err(self.hangs()),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    /// Reads the next line, which must begin with `word`, and returns the rest. `refused: WHY` is a
    /// refusal.
    pub fn hear_word(&mut self, word: &str) -> Result<String, Trouble> {
        let said = self.hear()?;
        match (said.strip_prefix(word), said.strip_prefix("refused: ")) {
            (Some(rest), _) => Ok(rest.trim().to_owned()),
            (None, Some(why)) => Err(Trouble::Refused(why.to_owned())),
            (None, None) => Err(self.nonsense(&said, &format!("a line that begins with {word:?}"))),
        }
    }

    /// The error for an unexpected line.
    pub fn nonsense(&self, said: &str, wanted: &str) -> Trouble {
        Trouble::Failed(format!("`{}` printed {said:?}, expected {wanted}", self.line))
    }

    /// Reads all output until the program exits on its own.
    pub fn finish(&mut self) -> Result<Vec<String>, Trouble> {
        drop(self.input.take());
        let deadline = Instant::now() + PATIENCE;
        let mut lines = Vec::new();
        loop {
            match self.output.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => lines.push(line),
                Err(RecvTimeoutError::Timeout) => return Err(self.hangs()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        match self.wait(END) {
            Some(status) if status.success() => Ok(lines),
            Some(_) => Err(self.ended()),
            None => Err(self.hangs()),
        }
    }

    /// CPU time of the process so far, in nanoseconds, including threads that have ended.
    pub fn cpu_time(&self) -> Result<f64, Trouble> {
        let id = nix::unistd::Pid::from_raw(self.child.id() as i32);
        let now = clock_getcpuclockid(id).and_then(clock_gettime);
        let now = now.map_err(|e| format!("cannot read the CPU clock of `{}`: {e}", self.line))?;
        Ok(now.tv_sec() as f64 * 1e9 + now.tv_nsec() as f64)
    }

    /// User-mode instructions so far; `None` if the machine has no counter.
    pub fn instructions(&self) -> Option<u64> {
        self.instructions.as_ref()?.count().ok().filter(|&count| count > 0)
    }

    /// Sends SIGTERM to the program, for programs that ignore the end of their input.
    pub fn terminate(&mut self) -> Result<(), Trouble> {
        // The child has not been reaped, so the ID is still its own.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        drop(self.input.take());
        match self.wait(END) {
            Some(_) => Ok(()),
            None => Err(self.hangs()),
        }
    }

    fn wait(&mut self, patience: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + patience;
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Err(_) => return None,
                Ok(None) if Instant::now() >= deadline => return None,
                Ok(None) => thread::sleep(LOOK),
            }
        }
    }

    fn hangs(&mut self) -> Trouble {
        let _ = self.child.kill();
        let seconds = PATIENCE.as_secs();
        Trouble::Failed(format!("`{}` was killed: no progress for {seconds} s", self.line))
    }

    /// The error of a program that exited early or failed.
    fn ended(&mut self) -> Trouble {
        let Some(status) = self.wait(END) else { return self.hangs() };
        let complaint =
            self.complaint.take().and_then(|thread| thread.join().ok()).unwrap_or_default();
        classify(&self.line, &status, &complaint)
    }
}

/// Derives the type of a failure from the program's error output.
fn classify(line: &str, status: &ExitStatus, complaint: &str) -> Trouble {
    if let Some((_, why)) = complaint.lines().find_map(|line| line.split_once("refused: ")) {
        return Trouble::Refused(why.to_owned());
    }
    let said: Vec<&str> =
        complaint.lines().filter(|line| !line.trim().is_empty()).take(COMPLAINT).collect();
    let why = format!("`{line}` ended with {status}: {}", said.join(" / "));
    // The first message is kumi's, the others are clap's.
    let unknown =
        ["no such benchmark", "unrecognized subcommand", "unexpected argument", "invalid value"];
    match unknown.iter().any(|words| complaint.contains(words)) {
        true => Trouble::Missing(why),
        false => Trouble::Failed(why),
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.input.take());
        // Most programs exit at the end of their input. None may outlive its measurement.
        if self.wait(Duration::from_millis(500)).is_none() {
            let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
            if self.wait(END).is_none() {
                let _ = self.child.kill();
                let _ = self.child.wait();
            }
        }
    }
}

/// Creates a directory and names it in errors.
pub fn make(path: &Path) -> Result<(), String> {
    std::fs::create_dir_all(path).map_err(|e| format!("cannot create {}: {e}", path.display()))
}
