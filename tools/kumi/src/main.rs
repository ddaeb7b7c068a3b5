//! `kumi`, the command of Kumihimo: the library's subcommands, and those forwarded to the
//! laboratory's binary.
#![forbid(unsafe_code)]

mod forward;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "kumi",
    version,
    about = "Kumihimo's command: show, steer and trace microprocesses, run servers, check this machine"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run benchmarks, with rivals if asked, and compare with targets (kumi-lab)
    #[command(disable_help_flag = true)]
    Bench(forward::Args),
    /// Demonstrate microprocesses on real work within 90 s (kumi-lab)
    #[command(disable_help_flag = true)]
    Tour(forward::Args),
    #[command(flatten)]
    Own(kumi::Command),
}

fn main() -> ExitCode {
    match Cli::parse().command {
        Command::Bench(args) => forward::run("bench", args),
        Command::Tour(args) => forward::run("tour", args),
        Command::Own(command) => kumi::ended(command.run(Cli::command())),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::read_to_string;

    use kumihimo_tests::book::{blocks, pages};
    use kumihimo_tests::root;

    use super::*;

    #[test]
    fn command_line_is_well_formed() {
        Cli::command().debug_assert();
    }

    /// The words of a call of `kumi`, without what stands before it: variables, `sudo`, a
    /// container.
    fn call(line: &str) -> Option<Vec<&str>> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_kumi = |word: &&str| *word == "kumi" || word.ends_with("release/kumi");
        let at = words.iter().position(is_kumi)?;
        let is_prefix =
            |word: &&str| word.contains('=') || ["sudo", "docker", "exec", "NAME"].contains(word);
        words[..at].iter().all(is_prefix).then(|| words[at..].to_vec())
    }

    #[test]
    fn every_call_of_kumi_in_the_documents_is_accepted() {
        let mut documents = pages(&root().join("docs/src"));
        documents.extend(["README.md", "CONTRIBUTING.md"].map(|name| root().join(name)));
        let (mut count, mut wrong) = (0, Vec::new());
        for page in documents {
            let text = read_to_string(&page).expect("a page");
            let lines = blocks(&text).into_iter().filter(|block| block.info == "sh");
            for line in lines.flat_map(|block| block.lines) {
                let Some(words) = call(line) else { continue };
                count += 1;
                match Cli::try_parse_from(&words) {
                    Err(error) if error.use_stderr() => {
                        wrong.push(format!("{}: {line}: {error}", page.display()));
                    }
                    _ => {}
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(count > 30, "{count}: the pages show calls differently");
    }

    #[test]
    fn calls_behind_a_prefix_are_found() {
        assert_eq!(call("sudo kumi events status"), Some(vec!["kumi", "events", "status"]));
        assert_eq!(call("KUMI_DIR=/run/kumi kumi ps"), Some(vec!["kumi", "ps"]));
        assert_eq!(call("man kumi"), None);
        assert!(Cli::try_parse_from(["kumi", "ps", "--no-such-option"]).is_err());
    }
}
