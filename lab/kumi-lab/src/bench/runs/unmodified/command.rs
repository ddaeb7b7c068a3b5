//! Commands of programs under each runtime.

use std::path::Path;
use std::process::Command;

use crate::bench::plan::unmodified::OURS;

/// The command of `program` under a runtime: the program itself, or `kumi run` of this build, which
/// fails rather than run it on kernel threads.
pub fn under(runtime: &str, program: &Path) -> Result<Command, String> {
    if runtime != OURS {
        return Ok(Command::new(program));
    }
    let own = std::env::current_exe().map_err(|e| format!("own program: {e}"))?;
    let mut command = Command::new(own);
    command.args(["run", "--strict"]).arg(program);
    Ok(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_runs_under_its_runtime() {
        let path = Path::new("/bin/true");
        assert_eq!(under("std", path).unwrap().get_program(), "/bin/true");
        let ours = under(OURS, path).unwrap();
        assert_eq!(ours.get_args().collect::<Vec<_>>(), ["run", "--strict", "/bin/true"]);
    }
}
