//! Processes: the clock, which shares no data with the files, is a server of its own in an address
//! space of its own, and each of the two is sequential. P1's MPFS.

use std::io;
use std::process::{Child, Command, Stdio};

/// A server in a process of its own. It is told to end when this is dropped; that it goes on when
/// the one that began it dies is what it is apart for.
#[derive(Debug)]
pub struct Apart {
    child: Child,
}

/// Begins `kumi` with these arguments, and waits until it says that it serves.
///
/// # Errors
/// As spawning; that it ended instead, with what it said on standard error already there.
pub fn apart(arguments: &[&std::ffi::OsStr]) -> io::Result<Apart> {
    use io::BufRead;
    let mut child = Command::new(std::env::current_exe()?)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()?;
    let mut line = String::new();
    if let Some(said) = child.stdout.take() {
        io::BufReader::new(said).read_line(&mut line)?;
    }
    if line.is_empty() {
        let status = child.wait()?;
        return Err(io::Error::other(format!("the clock server ended: {status}")));
    }
    Ok(Apart { child })
}

impl Apart {
    /// Its process id.
    #[must_use]
    pub fn id(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        if let Some(pid) =
            i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw)
        {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        let _ = self.child.wait();
    }
}
