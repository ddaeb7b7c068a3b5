//! `compare THEIRS OURS [START]`: runs all cases, or those whose names begin with START, in two
//! directories and prints the differences.

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [theirs, ours, rest @ ..] = &arguments[..] else {
        eprintln!("usage: compare THEIRS OURS [START]");
        return ExitCode::from(2);
    };
    let start = rest.first().map_or("", String::as_str);
    let compared =
        kumihimo_conformance::compare_some(Path::new(theirs), Path::new(ours), &[], |name| {
            name.starts_with(start)
        });
    println!("{}", compared.unexplained.join("\n"));
    println!("{} cases, {} differ", compared.cases, compared.unexplained.len());
    if compared.unexplained.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
