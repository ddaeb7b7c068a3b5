//! A pseudo-terminal for a program that draws. The output is read like by a terminal, and
//! discarded.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// A common window size.
const SIZE: Winsize = Winsize { ws_col: 120, ws_row: 40, ws_xpixel: 0, ws_ypixel: 0 };
/// Time limit for the first output.
const PATIENCE: Duration = Duration::from_secs(10);

/// A program and its terminal, ended when dropped.
pub struct Terminal {
    program: Child,
    drawn: Arc<AtomicU64>,
    keys: File,
}

impl Terminal {
    /// Starts the program in a pseudo-terminal (pty(7)), and waits for its first output.
    pub fn start(mut command: Command) -> Result<Terminal, String> {
        let failed = |e: rustix::io::Errno| format!("pseudo-terminal: {e}");
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
            .map_err(failed)?;
        grantpt(&ours).and_then(|()| unlockpt(&ours)).map_err(failed)?;
        let name = ptsname(&ours, Vec::new()).map_err(failed)?;
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let its: File = open(name.as_c_str(), flags, Mode::empty()).map_err(failed)?.into();
        tcsetwinsize(&its, SIZE).map_err(failed)?;
        let side = || its.try_clone().map(Stdio::from).map_err(|e| e.to_string());
        command.stdin(side()?).stdout(side()?).stderr(side()?).env("TERM", "xterm-256color");
        let program =
            command.spawn().map_err(|e| format!("{}: {e}", command.get_program().display()))?;
        let ours = File::from(ours);
        let keys = ours.try_clone().map_err(|e| e.to_string())?;
        let drawn = Arc::new(AtomicU64::new(0));
        let counted = drawn.clone();
        // Ends when no process has the other side open.
        thread::spawn(move || take(ours, &counted));
        let terminal = Terminal { program, drawn, keys };
        let start = Instant::now();
        while terminal.drawn() == 0 {
            if start.elapsed() > PATIENCE {
                return Err(format!(
                    "{}: no output on the terminal",
                    command.get_program().display()
                ));
            }
            thread::sleep(Duration::from_millis(5));
        }
        Ok(terminal)
    }

    /// Process ID.
    pub fn id(&self) -> u32 {
        self.program.id()
    }

    /// Presses keys.
    pub fn press(&mut self, keys: &str) -> Result<(), String> {
        self.keys.write_all(keys.as_bytes()).map_err(|e| format!("the terminal: {e}"))
    }

    /// Number of bytes drawn so far.
    pub fn drawn(&self) -> u64 {
        self.drawn.load(Relaxed)
    }
}

fn take(mut from: File, drawn: &AtomicU64) {
    let mut some = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut some) {
        drawn.fetch_add(n as u64, Relaxed);
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // The child has not been reaped, so the ID is still its own.
        let _ = kill_process(Pid::from_child(&self.program), Signal::TERM);
        let start = Instant::now();
        while start.elapsed() < PATIENCE {
            if !matches!(self.program.try_wait(), Ok(None)) {
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_has_a_terminal_of_40_lines_and_is_ended() {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "test -t 0 && test -t 1 && stty size && read forever"]);
        let terminal = Terminal::start(command).unwrap();
        let shown = "40 120\r\n".len() as u64;
        while terminal.drawn() < shown {
            thread::yield_now();
        }
        drop(terminal);
    }
}
