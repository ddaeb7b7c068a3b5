//! The program that is profiled: a running one, or one that is started for that.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use kumihimo_machine::client::{Machine, Neighbour};
use kumihimo_machine::handler::Space;

use crate::ask::{self, Place};
use crate::run;

/// Time between two searches for the address space of a program that starts.
const SEARCH: Duration = Duration::from_millis(5);

/// An address space to profile.
pub(super) struct Target {
    pub(super) neighbour: Neighbour,
    pub(super) space: Space,
}

/// Finds the address space of a running program; without a place, the only one there is.
pub(super) fn find(machine: &Machine, place: Option<Place>) -> Result<Target, String> {
    let Some(place) = place else {
        let mut all = machine.spaces().map_err(|e| e.to_string())?;
        let Some(mut neighbour) = all.pop() else {
            return Err(format!(
                "no program on Kumihimo runs in {}: start one with kumi profile -- PROGRAM",
                machine.path().display()
            ));
        };
        if !all.is_empty() {
            return Err(format!(
                "{} programs run: give the process ID of one (see kumi ps --spaces)",
                all.len() + 1
            ));
        }
        let space = neighbour.space().map_err(|e| e.to_string())?;
        return Ok(Target { neighbour, space });
    };
    let (mut neighbour, place) = match ask::neighbour(machine, place) {
        Ok((place, neighbour)) => (neighbour, place),
        Err(why) => return Err(explain(why, place)),
    };
    let space = ask::space_at(&mut neighbour, place).map_err(|trouble| trouble.to_string())?;
    Ok(Target { neighbour, space })
}

/// Adds to the error for a number under which no address space was found what the process with that
/// ID is.
fn explain(why: String, place: Place) -> String {
    let Some(pid) = place.pid() else { return why };
    let Ok(process) = fs::metadata(format!("/proc/{pid}")) else {
        return format!("{why}; there is no process {pid}");
    };
    let own = rustix::process::geteuid().as_raw();
    if process.uid() != own {
        return format!(
            "{why}; process {pid} belongs to user {}: give that user's run-time directory with --in DIR",
            process.uid()
        );
    }
    format!("{why}; process {pid} does not run on Kumihimo: start it with kumi profile -- PROGRAM")
}

/// Starts a program, and waits until its address space can be reached. The inner error is the exit
/// code of a program that could not be started; the reason has been printed.
pub(super) fn start(
    machine: &Machine,
    name: &OsString,
    words: &[OsString],
    ends: &AtomicBool,
) -> Result<Result<(Target, Child), ExitCode>, String> {
    let mut command = match run::command(name, words) {
        Ok(command) => command,
        Err(code) => return Ok(Err(code)),
    };
    let mut child = command.spawn().map_err(|e| format!("{}: {e}", name.display()))?;
    loop {
        let pid = child.id();
        let found = ask::each(machine.spaces().map_err(|e| e.to_string())?, |neighbour| {
            neighbour.space().ok().filter(|space| space.pid == pid && space.vps > 0)
        });
        let its = found.into_iter().find_map(|(neighbour, space)| Some((neighbour, space?)));
        if let Some((neighbour, space)) = its {
            return Ok(Ok((Target { neighbour, space }, child)));
        }
        if child.try_wait().map_err(|e| e.to_string())?.is_some() {
            eprintln!(
                "kumi: {}: it ended before it had a microprocess: there is no profile",
                name.display()
            );
            return wait(child).map(Err);
        }
        if ends.load(Ordering::Relaxed) {
            return wait(child).map(Err);
        }
        thread::sleep(SEARCH);
    }
}

/// Waits for a program that was started. Returns its exit code as in a shell: 128 plus the number
/// of the signal that ended it.
pub(super) fn wait(mut child: Child) -> Result<ExitCode, String> {
    let status = child.wait().map_err(|e| e.to_string())?;
    let code = status.code().or_else(|| Some(128 + status.signal()?)).unwrap_or(1);
    Ok(ExitCode::from(code as u8))
}
