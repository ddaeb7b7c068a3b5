//! Tests of `kumi completions` and `kumi man`.

use std::io::Write;
use std::process::{Command, Stdio};

use super::double::{Folder, KUMI, told};

/// The subcommands that `kumi --help` lists.
fn subcommands() -> Vec<String> {
    let (_, help, _) = told(&Command::new(KUMI).arg("--help").output().expect("kumi"));
    let list =
        help.split_once("Commands:\n").expect("a list").1.split_once("\n\n").expect("its end").0;
    let names: Vec<String> =
        list.lines().filter_map(|line| line.split_whitespace().next()).map(str::to_owned).collect();
    assert!(names.len() > 15 && names.iter().any(|name| name == "ps"), "{names:?}");
    names.into_iter().filter(|name| name != "help").collect()
}

#[test]
fn completions_list_every_subcommand() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = Command::new(KUMI).args(["completions", shell]).output().expect("kumi");
        let (code, script, _) = told(&output);
        assert_eq!(code, 0);
        for name in subcommands() {
            assert!(script.contains(&name), "{shell}: {name}");
        }
    }
}

#[test]
fn bash_loads_the_completions() {
    let output = Command::new(KUMI).args(["completions", "bash"]).output().expect("kumi");
    let mut bash = Command::new("bash")
        .arg("-n")
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("bash");
    bash.stdin.take().expect("a pipe").write_all(&output.stdout).expect("it reads");
    let output = bash.wait_with_output().expect("it ends");
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    // Completions for a state.
    let script = format!(
        "source <({KUMI} completions bash) && COMP_WORDS=(kumi ps --state s) COMP_CWORD=3 && _kumi kumi s --state && echo \"${{COMPREPLY[@]}}\""
    );
    let (code, said, complaints) =
        told(&Command::new("bash").args(["-c", &script]).output().expect("bash"));
    assert_eq!((code, said.as_str()), (0, "suspended\n"), "{complaints}");
}

#[test]
fn every_subcommand_has_a_manual_page() {
    let folder = Folder::new("man");
    let path = folder.path().to_str().expect("text");
    assert_eq!(folder.kumi(&["man", path]), (0, String::new(), String::new()));
    let page = |name: &str| {
        std::fs::read_to_string(folder.path().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    assert!(page("kumi.1").contains(".TH"));
    for name in subcommands() {
        let text = page(&format!("kumi-{name}.1"));
        assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{name}: {text}");
    }
    assert!(!folder.path().join("kumi-bench-child.1").exists(), "hidden subcommands have no page");
    let (code, said, _) = folder.kumi(&["man"]);
    assert!(code == 0 && said == page("kumi.1"));
    let (code, _, complaints) = folder.kumi(&["man", "/no/such/folder"]);
    assert!(code == 1 && complaints.starts_with("kumi: /no/such/folder: "), "{complaints}");
}

#[test]
fn help_describes_the_installation() {
    for (command, place) in
        [("completions", "bash-completion/completions/kumi"), ("man", "share/man/man1")]
    {
        let (_, help, _) =
            told(&Command::new(KUMI).args([command, "--help"]).output().expect("kumi"));
        assert!(help.contains(place), "{help}");
    }
}
