//! `kumi doctor --run`: what `kumi run` would do.

use std::process::Command;

use crate::bed::{Built, KUMI, LIBRARIES, folder, run, write_program};

#[test]
fn doctor_says_what_would_happen() {
    let test = "doctor::doctor_says_what_would_happen";
    let Some(built) = Built::new(test, "shell.c") else { return };
    let doctor = |words: &[&str]| {
        let mut command = Command::new(KUMI);
        built.prepare(&mut command);
        run(test, command.args(["doctor", "--run"]).args(words))
    };
    let program = built.program.to_str().expect("text");
    let ended = doctor(&[program]);
    assert_eq!(ended.status.code(), Some(0), "{}", ended.told());
    let value = |of: &str| {
        let mut lines = ended.stdout.lines();
        lines.find_map(|line| line.strip_prefix(of)).unwrap_or_default().trim().to_owned()
    };
    assert_eq!(value("program "), program);
    assert_eq!(value("threads "), "microprocesses, from its first thread on");
    let libraries = LIBRARIES.map(|name| folder().join(name).display().to_string());
    assert_eq!(value("preloaded "), libraries.join(":"));

    let script = built.place.0.join("script");
    write_program(&script, format!("#!{program}\n").as_bytes());
    let ended = doctor(&[script.to_str().expect("text")]);
    assert!(
        ended.stdout.contains(&format!("{program}, which the script names")),
        "{}",
        ended.told()
    );

    let ended = doctor(&["./nothing"]);
    assert_eq!(ended.status.code(), Some(1), "{}", ended.told());
    assert_eq!(ended.stderr, "kumi: ./nothing: no such program\n");
    let ended = doctor(&["--waits", program]);
    assert_eq!(ended.status.code(), Some(2), "{}", ended.told());
}
