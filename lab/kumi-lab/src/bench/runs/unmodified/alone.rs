//! Programs without a load: they run to their end, on the first core.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;

use kumihimo_bench_kit::Usage;
use kumihimo_bench_kit::work::Dice;

use super::command::under;
use super::setup::Setup;
use super::{label, rounds, sample};
use crate::bench::contender::installed::installed;
use crate::bench::contender::{Missing, Trouble, output_on, own_cores};
use crate::bench::plan::order::Order;
use crate::bench::plan::unmodified::{Cell, OURS, Program};
use crate::bench::report::row::Sample;

/// Number of threads under `kumi run`.
const THREADS: usize = 100_000;
/// Number of kernel threads: identifiers and mappings have lower limits.
const KERNEL_THREADS: usize = 10_000;
/// First release in which a guard region needs no mapping of its own.
const WITH_GUARDS: (u32, u32) = (6, 13);
/// Size of the file that is compressed.
const BYTES: usize = 8 << 20;

/// Runs the contenders of a cell in turn.
pub fn run(
    cell: &Cell,
    setup: &Setup,
    runs: usize,
    order: &mut Order,
    missing: &mut Missing,
) -> Vec<Sample> {
    let contenders: Vec<_> = cell.runtimes.iter().map(|&runtime| Some((runtime, ()))).collect();
    for runtime in cell.runtimes {
        eprintln!("  {}", label(cell, runtime));
    }
    rounds(cell, contenders, runs, order, missing, |runtime, ()| once(cell, setup, runtime))
}

fn once(cell: &Cell, setup: &Setup, runtime: &'static str) -> Result<Vec<Sample>, Trouble> {
    let one = |row, remarks: &str| sample(cell, runtime, row, remarks);
    let output = |mut command: Command| output_on(&own_cores()[..1], &mut command);
    match cell.program {
        Program::Xz => {
            let program = installed("xz", "apt-get install xz-utils")?;
            let file = text(setup)?;
            let mut command = under(runtime, &program)?;
            command.args(["-T4", "--block-size=1MiB", "-3", "--keep", "--force"]).arg(&file);
            let before = Usage::of_children();
            output(command)?;
            let cpu = Usage::of_children().since(before).cpu.as_secs_f64();
            decompresses_to(&program, &file)?;
            Ok(vec![one(("cpu", cpu, "s"), "threads=4")])
        }
        Program::Locks => {
            let said = output(under(runtime, &setup.compiled("locks")?)?)?;
            let [each] = numbers(&said)?;
            Ok(vec![one(("lock_unlock", each, "ns"), "")])
        }
        Program::Threads => {
            let count = if runtime == OURS { THREADS } else { KERNEL_THREADS };
            let uname = rustix::system::uname();
            let release = uname.release().to_string_lossy();
            if runtime == OURS && version(&release) < Some(WITH_GUARDS) {
                return Err(Trouble::Refused(format!(
                    "Linux 6.13 or later is needed for {count} threads at the default vm.max_map_count, this is {release}"
                )));
            }
            let mut command = under(runtime, &setup.compiled("threads")?)?;
            command.arg(count.to_string());
            let [seconds, rss, tables] = numbers(&output(command)?)?;
            let rows =
                [("created", seconds, "s"), ("rss_each", rss, "B"), ("tables_each", tables, "B")];
            Ok(rows.map(|row| one(row, &format!("threads={count}"))).into())
        }
        _ => Err(format!("{} needs a load", cell.program.name()).into()),
    }
}

/// The numbers of a line.
fn numbers<const N: usize>(said: &str) -> Result<[f64; N], String> {
    let all: Vec<f64> = said.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    all.try_into().map_err(|_| format!("the program printed {said:?}"))
}

/// The first two numbers of a kernel's release.
fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Compares the decompressed file beside `file` with it, and removes the former.
fn decompresses_to(xz: &Path, file: &Path) -> Result<(), Trouble> {
    let failed = |e: std::io::Error| format!("{}: {e}", file.display());
    let compressed = file.with_extension("xz");
    let mut command = Command::new(xz);
    command.args(["--decompress", "--stdout"]).arg(&compressed);
    let text = output_on(&own_cores(), &mut command)?;
    if text.as_bytes() != std::fs::read(file).map_err(failed)? {
        return Err(format!("{} has another text", compressed.display()).into());
    }
    Ok(std::fs::remove_file(compressed).map_err(failed)?)
}

/// A file of words, the same in every run.
fn text(setup: &Setup) -> Result<std::path::PathBuf, Trouble> {
    let path = setup.path("words");
    if !path.is_file() {
        write_words(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(path)
}

fn write_words(path: &Path) -> std::io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut dice = Dice::new(1);
    let mut written = 0;
    while written < BYTES {
        let word = format!("{:x} ", dice.below(1 << 14));
        file.write_all(word.as_bytes())?;
        written += word.len();
    }
    file.flush()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_program_are_counted() {
        assert_eq!(numbers("1.5 2\n"), Ok([1.5, 2.0]));
        assert!(numbers::<1>("").is_err() && numbers::<1>("1 2").is_err());
    }

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.18.44-fc"), Some((6, 18)));
        assert!(version("6.9.0") < Some(WITH_GUARDS) && version("6.13") >= Some(WITH_GUARDS));
        assert_eq!(version("what"), None);
    }

    #[test]
    fn cpu_time_of_an_ended_child_is_counted() {
        let before = Usage::of_children();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done"]);
        output_on(&own_cores(), &mut command).unwrap();
        assert!(!Usage::of_children().since(before).cpu.is_zero());
    }
}
