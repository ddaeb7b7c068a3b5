//! P1's second load: commands, again and again, whose questions for the time go to the time server.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use super::clock::NOW;
use super::outcome::Outcome;
use super::tree::PROJECT;

/// Each with its arguments. `ls -l`: without, it does not care for the time; `make -B`: everything
/// is made anew.
pub const COMMANDS: [(&str, &[&str]); 5] =
    [("date", &[]), ("ls", &["-l"]), ("make", &["-s", "-B"]), ("pwd", &[]), ("whoami", &[])];

/// Builds the shim into `directory`: see shim/clock.c.
///
/// # Errors
/// No compiler, or it complains.
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

/// Each command so often, in the project's directory on the mount; microseconds of one, by its
/// name.
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
