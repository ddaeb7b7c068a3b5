//! `kumi mount` without `-f`: the same command in a process of its own, which is waited for until
//! it serves.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use crate::options::MountOptions;

/// Begins the server and returns once it serves.
pub(crate) fn run(options: &MountOptions) -> Result<(), String> {
    let program = std::env::current_exe()
        .map_err(|e| format!("where kumi itself is cannot be found out: {e}"))?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .args(["--foreground", "--detached"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("the server cannot be started: {e}"))?;
    let mut line = String::new();
    let said = child.stdout.take().map(BufReader::new);
    if let Some(mut said) = said {
        said.read_line(&mut line).map_err(|e| e.to_string())?;
    }
    if line.starts_with("mounted ") {
        return Ok(());
    }
    // What was wrong it has said itself.
    let status = child.wait().map_err(|e| e.to_string())?;
    Err(format!("{} is not mounted: the server ended ({status})", options.mountpoint.display()))
}

/// Leaves the session, where the server is in a process of its own.
pub(crate) fn leave_session(is_detached: bool) {
    if is_detached {
        // A group's leader cannot, and is where it wants to be.
        let _ = rustix::process::setsid();
    }
}

/// Lets go of the standard streams, where the server is in a process of its own. They are those of
/// the starting process, whose pipes would never end. Later messages go to the log.
pub(crate) fn leave_streams(is_detached: bool, log: Option<&Path>) -> io::Result<()> {
    if !is_detached {
        return Ok(());
    }
    let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let log: File = match log {
        Some(path) => OpenOptions::new().append(true).create(true).open(path)?,
        None => nowhere.try_clone()?,
    };
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok(())
}
