//! The paper's second load (P1): repeated commands whose requests for the time go to the time
//! server.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::clock::NOW;
use super::outcome::Outcome;
use super::tree::PROJECT;

/// Commands with their arguments. `-l` makes ls(1) request the time; `-B` makes make(1) rebuild
/// everything.
pub const COMMANDS: [(&str, &[&str]); 5] =
    [("date", &[]), ("ls", &["-l"]), ("make", &["-s", "-B"]), ("pwd", &[]), ("whoami", &[])];

/// Builds the shim library into `directory`: see shim/clock.c.
///
/// # Errors
/// If there is no compiler, or it fails.
pub fn shim(directory: &Path) -> Result<PathBuf, String> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("shim/clock.c");
    let library = directory.join("kumi-clock.so");
    let mut cc = Command::new("cc");
    cc.args(["-O2", "-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(&source);
    let built = cc.output().map_err(|e| format!("cc: {e}"))?;
    match built.status.success() {
        true => Ok(library),
        false => {
            Err(format!("{}: {}", source.display(), String::from_utf8_lossy(&built.stderr).trim()))
        }
    }
}

/// Runs each command `times` times in the project's directory on the mount. Returns microseconds
/// for one run of each command.
pub fn run(root: &Path, clock: &Path, shim: &Path, times: u32) -> Result<Outcome, String> {
    let mut outcome = Outcome::default();
    for (program, arguments) in COMMANDS {
        let once = || -> Result<(), String> {
            let mut command = Command::new(program);
            command
                .args(arguments)
                .current_dir(root.join(PROJECT))
                .stdin(Stdio::null())
                .stdout(Stdio::null());
            command.env("LD_PRELOAD", shim).env("KUMI_CLOCK", clock.join(NOW));
            let status = command.status().map_err(|e| format!("{program}: {e}"))?;
            if status.success() { Ok(()) } else { Err(format!("{program}: {status}")) }
        };
        once()?;
        let begun = Instant::now();
        (0..times).try_for_each(|_| once())?;
        outcome = outcome.with(program, begun.elapsed().as_secs_f64() * 1e6 / f64::from(times));
    }
    Ok(outcome)
}
