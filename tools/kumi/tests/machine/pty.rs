//! A pseudo-terminal that runs a command, and the contents of its screen.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};

use super::double::{Folder, KUMI};

/// Timeout of every wait. Reaching it means a hang.
const LIMIT: Duration = Duration::from_secs(60);
const A_MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

pub struct Pty {
    /// The master side; `None` after a hang-up.
    master: Option<File>,
    /// Kept open, so that the terminal's settings can be read after the program has ended.
    slave: File,
    child: Child,
    parser: vt100::Parser,
}

/// Whether the terminal is the program's controlling terminal. Only then does a hang-up send
/// SIGHUP.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Controlling {
    Yes,
    No,
}

impl Pty {
    /// Starts `kumi` with these arguments in a terminal of the given size.
    pub fn start(
        folder: &Folder,
        args: &[&str],
        (width, height): (u16, u16),
        controlling: Controlling,
    ) -> Pty {
        let master: OwnedFd =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a pty");
        grantpt(&master).and_then(|()| unlockpt(&master)).expect("its other side");
        let name = ptsname(&master, Vec::new()).expect("its name");
        let name = PathBuf::from(name.to_str().expect("text"));
        let slave = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NOCTTY)
            .open(name)
            .expect("its other side");
        let mut command = match controlling {
            Controlling::Yes => {
                let mut command = Command::new("setsid");
                command.args(["--ctty", KUMI]);
                command
            }
            Controlling::No => Command::new(KUMI),
        };
        let side = || Stdio::from(slave.try_clone().expect("a descriptor"));
        command.args(args).env("KUMI_DIR", folder.path()).env("TERM", "xterm-256color");
        command.env("XDG_CONFIG_HOME", folder.config());
        command.stdin(side()).stdout(side()).stderr(side());
        Pty {
            master: Some(master.into()),
            child: {
                tcsetwinsize(&slave, size(width, height)).expect("a size");
                command.spawn().expect("setsid, of util-linux")
            },
            slave,
            parser: vt100::Parser::new(cells(height), cells(width), 0),
        }
    }

    /// Contents of the screen.
    pub fn screen(&self) -> String {
        self.parser.screen().contents()
    }

    /// Returns whether the alternate screen is active.
    pub fn is_taken(&self) -> bool {
        self.parser.screen().alternate_screen()
    }

    /// Returns whether the terminal is in the mode that a shell needs: line editing and echo.
    pub fn is_cooked(&self) -> bool {
        let modes = tcgetattr(&self.slave).expect("its settings").local_modes;
        modes.contains(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG)
    }

    /// Sends keys.
    pub fn send(&mut self, keys: &str) {
        self.master.as_mut().expect("there").write_all(keys.as_bytes()).expect("room");
    }

    /// Reads output until the screen meets a condition.
    pub fn until(&mut self, wanted: impl Fn(&str) -> bool) {
        let start = Instant::now();
        while !wanted(&self.screen()) {
            self.read(A_MOMENT);
            assert!(start.elapsed() < LIMIT, "it hangs:\n{}", self.screen());
        }
    }

    /// Reads output until the screen contains `text`.
    pub fn until_shown(&mut self, text: &str) {
        self.until(|screen| screen.contains(text));
    }

    /// Reads some output; returns false if there is none within the time.
    fn read(&mut self, within: Timespec) -> bool {
        let master = self.master.as_mut().expect("there");
        let mut fds = [PollFd::new(master, PollFlags::IN)];
        if poll(&mut fds, Some(&within)).expect("poll") == 0 {
            return false;
        }
        let mut some = [0; 4096];
        let n = master.read(&mut some).expect("the other side is open here");
        self.parser.process(&some[..n]);
        true
    }

    /// Changes the size of the terminal, which sends SIGWINCH.
    pub fn resize(&mut self, width: u16, height: u16) {
        self.parser.screen_mut().set_size(cells(height), cells(width));
        tcsetwinsize(self.master.as_ref().expect("there"), size(width, height)).expect("a size");
    }

    /// Sends a signal to the program.
    pub fn kill(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it lives");
    }

    /// Closes the master side, which hangs the terminal up.
    pub fn hang_up(&mut self) {
        self.master = None;
    }

    /// Waits until the program is stopped.
    pub fn until_stopped(&mut self) {
        until_stopped(&self.child);
        while self.read(Timespec::default()) {}
    }

    /// Waits until the program exits. Reads its output meanwhile, so that the program does not
    /// block.
    pub fn wait(&mut self) -> ExitStatus {
        while self.master.is_some() {
            let ended = self.child.try_wait().expect("it is ours");
            while self.read(A_MOMENT) {}
            if let Some(status) = ended {
                return status;
            }
        }
        self.child.wait().expect("it ends")
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until all kernel threads of a process are stopped, which happens some time after the
/// signal.
pub fn until_stopped(child: &Child) {
    let stopped = waitpid(Some(Pid::from_child(child)), WaitOptions::UNTRACED).expect("it is ours");
    let (_, status) = stopped.expect("waited for");
    assert!(status.stopped(), "{status:?}");
}

fn cells(n: u16) -> NonZero<u16> {
    NonZero::new(n).expect("some")
}

fn size(width: u16, height: u16) -> Winsize {
    Winsize { ws_col: width, ws_row: height, ws_xpixel: 0, ws_ypixel: 0 }
}
