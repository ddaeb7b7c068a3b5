//! Processes: file server and clock share no data, and run as separate sequential servers, each in
//! its own address space. This is MPFS in P1.

use std::io;
use std::process::{Child, Command, Stdio};

/// Server in a separate process, which is terminated by SIGTERM when this is dropped. It survives a
/// crash of its parent, which is the purpose of the separation.
#[derive(Debug)]
pub struct Apart {
    child: Child,
}

/// Starts `kumi` with these arguments, and waits for its first line of output, which announces that
/// it serves. Blocks the kernel thread.
///
/// # Errors
/// As spawning a process. Also fails if the process ended first; its messages are on standard
/// error.
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
        return Err(io::Error::other(format!("the clock server ended before it served: {status}")));
    }
    Ok(Apart { child })
}

impl Apart {
    /// Returns the process ID.
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
