//! The commands that book and README show are ones that `kumi` takes.

use std::path::PathBuf;

use clap::Subcommand;
use kumihimo_tests::book::{blocks, pages};
use kumihimo_tests::root;

/// The words of a command of `kumi`, without what stands before it: `sudo`, variables, a folder.
fn command(line: &str) -> Option<Vec<&str>> {
    let goes_before = |word: &&str| *word == "sudo" || word.split_once('=').is_some();
    let words: Vec<&str> = line.split_whitespace().skip_while(goes_before).collect();
    (words.first()?.rsplit('/').next()? == "kumi").then_some(words)
}

#[test]
fn commands_of_the_book_are_taken() {
    let mut documents = pages(&root().join("docs/src"));
    documents.extend(["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
    let (mut count, mut wrong) = (0, Vec::new());
    for document in documents {
        let text = std::fs::read_to_string(&document).expect("a document");
        let lines = blocks(&text).into_iter().filter(|block| block.info == "sh");
        for line in lines.flat_map(|block| block.lines) {
            let Some(words) = command(line) else { continue };
            count += 1;
            // The laboratory's commands, which `kumi` forwards.
            if matches!(words.get(1), Some(&"bench" | &"tour")) {
                continue;
            }
            if let Err(error) = parse(&words) {
                wrong.push(format!("{}: {line}: {error}", name(&document)));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(count > 30, "{count}: the book shows commands differently");
}

fn parse(words: &[&str]) -> Result<(), String> {
    let line = kumi::Command::augment_subcommands(clap::Command::new("kumi"));
    match line.try_get_matches_from(words) {
        // `--help` is an error to clap, which prints the text to standard output.
        Err(error) if error.use_stderr() => Err(error.to_string()),
        _ => Ok(()),
    }
}

fn name(document: &std::path::Path) -> String {
    let path: PathBuf = document.strip_prefix(root()).unwrap_or(document).to_path_buf();
    path.display().to_string()
}

#[test]
fn unknown_options_are_refused() {
    assert_eq!(
        command("sudo KUMI_DIR=/x target/release/kumi ps"),
        Some(vec!["target/release/kumi", "ps"])
    );
    assert_eq!(command("cargo run"), None);
    assert!(parse(&["kumi", "ps", "--no-such-option"]).is_err() && parse(&["kumi", "ps"]).is_ok());
}
