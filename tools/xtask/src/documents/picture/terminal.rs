//! A program in a pseudo-terminal, and what its screen shows.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::num::NonZero;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::Failure;

const A_MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 10_000_000 };

pub struct Terminal {
    master: File,
    /// Kept open: the master reports an error once no other side is open.
    _slave: File,
    child: Child,
    parser: vt100::Parser,
    begun: Instant,
    /// What the program wrote, and when.
    written: Vec<(Duration, Vec<u8>)>,
}

impl Terminal {
    /// Starts `command` in a terminal of this many columns and rows.
    pub fn start(mut command: Command, (width, height): (u16, u16)) -> Result<Terminal, Failure> {
        let master: OwnedFd =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
        grantpt(&master)?;
        unlockpt(&master)?;
        let slave = ptsname(&master, Vec::new())?;
        let slave = OpenOptions::new().read(true).write(true).open(slave.to_str()?)?;
        tcsetwinsize(
            &slave,
            Winsize { ws_col: width, ws_row: height, ws_xpixel: 0, ws_ypixel: 0 },
        )?;
        command.env("TERM", "xterm-256color").env_remove("NO_COLOR");
        command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(Stdio::inherit());
        let child = command.spawn()?;
        let cells = |n| NonZero::new(n).ok_or("a terminal has rows and columns");
        let parser = vt100::Parser::new(cells(height)?, cells(width)?, 0);
        let (begun, written) = (Instant::now(), Vec::new());
        Ok(Terminal { master: master.into(), _slave: slave, child, parser, begun, written })
    }

    /// Reads some of what the program writes, if it writes within a moment.
    pub fn read(&mut self) -> Result<(), Failure> {
        let mut fds = [PollFd::new(&self.master, PollFlags::IN)];
        if poll(&mut fds, Some(&A_MOMENT))? > 0 {
            let mut some = [0; 4096];
            let n = self.master.read(&mut some)?;
            self.parser.process(&some[..n]);
            self.written.push((self.begun.elapsed(), some[..n].to_vec()));
        }
        Ok(())
    }

    /// Types keys.
    pub fn send(&mut self, keys: &str) -> Result<(), Failure> {
        Ok(self.master.write_all(keys.as_bytes())?)
    }

    /// What the program wrote so far, each part with its time since the start.
    pub fn written(&self) -> &[(Duration, Vec<u8>)] {
        &self.written
    }

    pub fn screen(&self) -> &vt100::Screen {
        self.parser.screen()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
