//! Counts lines and files that touch locking (P3, table 1).

use std::path::PathBuf;
use std::process::ExitCode;

use kumihimo_bench_locking::{Scaling, Table, sources};

use crate::Failure;

#[derive(clap::Args)]
pub struct Args {
    /// Relate the count to this reduction of run time, in percent, from one VP to two
    #[arg(long, value_name = "PERCENT", value_parser = per_cent, allow_negative_numbers = true, conflicts_with = "results")]
    reduction: Option<f64>,
    /// Relate the count to rows.jsonl in this directory, written by `kumi bench resources`
    /// [default: lab/results/resources]
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,
}

fn per_cent(text: &str) -> Result<f64, String> {
    text.parse()
        .ok()
        .filter(|value: &f64| value.is_finite())
        .ok_or_else(|| "not a number".to_owned())
}

/// Prints the counts by crate, and the time saved for each line that touches locking.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let root = sources().ok_or("the source tree has moved since this program was built")?;
    let table = Table::count(&root)?;
    println!("{table}");
    let all = table.all();
    let results = args.results.clone().unwrap_or_else(|| root.join("lab/results/resources"));
    let rows = results.join("rows.jsonl");
    match args.reduction {
        Some(reduction) => print!("{}", Scaling::given(&all, reduction)),
        None if rows.is_file() => print!("{}", Scaling::measured(&all, &rows)?),
        None => println!(
            "Less time a locking line: not known. {} is not there: kumi bench resources measures it, or \
             --reduction PERCENT.",
            rows.display()
        ),
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Locking {
        #[command(flatten)]
        args: Args,
    }

    fn parse(arguments: &[&str]) -> Option<Args> {
        Locking::try_parse_from([&["locking"], arguments].concat()).ok().map(|locking| locking.args)
    }

    #[test]
    fn reduction_may_be_a_fraction_or_negative() {
        for (text, value) in [("12.5", 12.5), ("-7", -7.0)] {
            assert_eq!(parse(&["--reduction", text]).expect("accepted").reduction, Some(value));
        }
    }

    #[test]
    fn other_arguments_are_refused() {
        let wrong: [&[&str]; 5] = [
            &["--reduction"],
            &["--reduction", "half"],
            &["--reduction", "NaN"],
            &["--results"],
            &["--reduction", "1", "--results", "."],
        ];
        for arguments in wrong {
            assert!(parse(arguments).is_none(), "{arguments:?}");
        }
    }
}
