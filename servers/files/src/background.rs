//! `kumi mount` without `-f`: runs the same command in a child process and waits until the file
//! system is served.

use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use kumihimo_config::named_file;

use crate::options::MountOptions;

/// Starts the server and returns once the file system is served.
pub(crate) fn run(options: &MountOptions) -> Result<(), String> {
    let program =
        std::env::current_exe().map_err(|e| format!("cannot determine the path of kumi: {e}"))?;
    let mut child = Command::new(program)
        .args(std::env::args_os().skip(1))
        .args(["--foreground", "--detached"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start the server: {e}"))?;
    let mut line = String::new();
    let said = child.stdout.take().map(BufReader::new);
    if let Some(mut said) = said {
        said.read_line(&mut line).map_err(|e| e.to_string())?;
    }
    if line.starts_with("mounted ") {
        return Ok(());
    }
    // The child has already printed the reason.
    let status = child.wait().map_err(|e| e.to_string())?;
    Err(format!("{} is not mounted: the server ended ({status})", options.mountpoint.display()))
}

/// Starts a new session, if the server runs in the background.
pub(crate) fn leave_session(is_detached: bool) {
    if is_detached {
        // setsid(2) fails for a process group leader, and such a process needs no new session.
        let _ = rustix::process::setsid();
    }
}

/// Redirects the standard streams, if the server runs in the background. They are inherited from
/// the starting process, whose pipes would stay open otherwise. Later messages go to the log.
pub(crate) fn leave_streams(is_detached: bool, log: Option<&Path>) -> io::Result<()> {
    if !is_detached {
        return Ok(());
    }
    let nowhere = OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let log: File = match log {
        Some(path) => named_file::open(path, OpenOptions::new().append(true))?,
        None => nowhere.try_clone()?,
    };
    rustix::stdio::dup2_stdin(&nowhere)?;
    rustix::stdio::dup2_stdout(&nowhere)?;
    rustix::stdio::dup2_stderr(&log)?;
    Ok(())
}
