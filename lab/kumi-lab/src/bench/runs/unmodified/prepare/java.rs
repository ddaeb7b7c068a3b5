//! Java: one release for all contenders, with virtual threads if there is one.

use crate::bench::contender::Trouble;
use crate::bench::contender::java::{WITH_VIRTUAL, compile, machine, too_old};
use crate::bench::plan::unmodified::VIRTUAL;
use crate::bench::runs::unmodified::command::under;
use crate::bench::runs::unmodified::setup::{Java, Prepared, Setup, source};

/// The installed release, or if it has no virtual threads the one that pip installs into the
/// scratch folder.
pub fn find(setup: &Setup) -> Result<Java, Trouble> {
    let classes = setup.folder("classes")?;
    compile(&source("Echo.java"), &classes)?;
    let (machine, release) = machine(&setup.folder("jdk")?)?;
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
        return Err(Trouble::Refused(too_old(java.release)));
    }
    let mut command = under(runtime, &java.machine)?;
    command.arg("-cp").arg(&java.classes).arg("Echo").arg(port.to_string());
    command.arg(if is_virtual { "virtual" } else { "platform" });
    let remarks = format!("java:={}", java.release);
    Ok(Prepared { command, folder: setup.folder("java")?, remarks })
}

#[cfg(test)]
mod tests {
    use super::*;

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
