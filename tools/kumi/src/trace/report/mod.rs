//! `kumi trace report`: a trace as one HTML file that needs neither a network nor other programs.
//!
//! - [`collect`] reads the trace once, with the checker, in bounded memory.
//! - [`lanes`], [`latency`] and [`contention`] are what it keeps; [`stacks`] come from beside it.
//! - [`columns`] writes the large part, compressed; [`facts`] the small part, as JSON.
//! - `page/` is the page itself: markup, style, scripts.

mod collect;
mod columns;
mod contention;
mod facts;
mod lanes;
mod latency;
mod stacks;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufRead, BufReader, Read as _, Seek as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use kumihimo_config::named_file;
use kumihimo_trace::spool::Spool;
use kumihimo_trace::{Reader, export};

use super::lock_stacks;
use crate::output_file;
use crate::page::{Page, binary_block, json_block, licences};
use collect::{Collected, LIMITS, collect};
use facts::Facts;
use stacks::Stacks;

#[derive(clap::Args)]
pub struct Args {
    /// A trace written by `kumi trace` or `Builder::trace`, or the spool that a killed program left
    file: PathBuf,
    /// File for the report
    #[arg(short, long, default_value = "report.html")]
    output: PathBuf,
    /// Milliseconds for which a microprocess is runnable and does not run before that is a stall
    #[arg(long, default_value_t = 10, value_name = "MS", value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    stall: u64,
    /// Consecutive steps of a VP that may leave a higher one waiting while a lower one runs
    /// [default: 6]
    #[arg(long)]
    bound: Option<u64>,
    /// Stacks of locks: lines of `kumi locks --json --backtraces` [default: FILE.locks, which `kumi
    /// trace --stacks` writes, if it exists]
    #[arg(long, value_name = "FILE")]
    stacks: Option<PathBuf>,
}

/// Scripts of the page, in the order in which they use each other.
const SCRIPTS: [&str; 6] = [
    include_str!("page/columns.js"),
    include_str!("page/text.js"),
    include_str!("page/table.js"),
    include_str!("page/timeline.js"),
    include_str!("page/sections.js"),
    include_str!("page/report.js"),
];
const STYLE: &str = include_str!("page/report.css");
const BODY: &str = include_str!("page/report.html");

/// Writes the report.
pub(super) fn run(args: &Args) -> Result<ExitCode, String> {
    let at = |e: String| match e.starts_with(&*args.file.to_string_lossy()) {
        true => e,
        false => format!("{}: {e}", args.file.display()),
    };
    if is_same(&args.file, &args.output) {
        return Err(at("the report would replace the trace; name another file with -o".to_owned()));
    }
    let (mut reader, bytes) = open(&args.file).map_err(at)?;
    let stall = args.stall.saturating_mul(1_000_000);
    let all = collect(&mut reader, stall, args.bound, LIMITS).map_err(at)?;
    let stacks = stacks_of(args, &reader.pids)?;
    drop(reader);
    let facts = Facts::of(&all, &stacks, &args.file, bytes, args.stall);
    let mut written = 0;
    output_file::replace(&args.output, |file| {
        let mut out = Counted { out: file, bytes: &mut written };
        write(&mut out, &facts, &all).map_err(|e| format!("{}: {e}", args.output.display()))
    })?;
    eprintln!(
        "kumi: {}: {}, {:.1} MB; open it in a browser",
        args.output.display(),
        facts.in_short(),
        written as f64 / 1e6
    );
    Ok(ExitCode::SUCCESS)
}

/// Reads the stacks that belong to the processes of the trace. A file beside the trace may be left
/// from an earlier one.
fn stacks_of(args: &Args, pids: &BTreeSet<u32>) -> Result<Stacks, String> {
    let beside = lock_stacks::beside(&args.file);
    let path = match &args.stacks {
        Some(path) => path,
        None if beside.is_file() => &beside,
        None => return Ok(Stacks::default()),
    };
    let stacks = Stacks::read(path)?;
    if stacks.pids.is_subset(pids) {
        return Ok(stacks);
    }
    let list =
        |pids: &BTreeSet<u32>| pids.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
    let why = format!(
        "{}: stacks of process {}, and the trace is of process {}",
        path.display(),
        list(&stacks.pids),
        list(pids)
    );
    if args.stacks.is_some() {
        return Err(why);
    }
    eprintln!("kumi: {why}: they are left out");
    Ok(Stacks::default())
}

/// Writes the page.
fn write<W: Write>(out: &mut W, facts: &Facts, all: &Collected) -> std::io::Result<()> {
    let body = BODY.replace("<!-- licences -->", &licences());
    let page = Page {
        title: &facts.title(),
        styles: &[STYLE],
        body: &body,
        scripts: &SCRIPTS,
        connect: "'none'",
    };
    page.write(out, |out| {
        json_block(out, "facts", facts)?;
        binary_block(out, "columns", |out| columns::write(all, out))
    })
}

fn is_same(one: &Path, other: &Path) -> bool {
    let real = |path: &Path| path.canonicalize().ok();
    real(one).is_some_and(|one| real(other) == Some(one))
}

/// Opens a trace or a spool. Returns its size, too.
fn open(path: &Path) -> Result<(Reader<Box<dyn BufRead>>, u64), String> {
    let named = |e: std::io::Error| e.to_string();
    let mut file = File::open(path).map_err(named)?;
    let about = file.metadata().map_err(named)?;
    if about.is_dir() {
        return Err("is a directory; name a trace".to_owned());
    }
    if about.is_file() && about.len() == 0 {
        return Err("is empty; the traced program has not ended, or started no runtime".to_owned());
    }
    let mut head = [0; Spool::MAGIC.len()];
    if about.is_file() && file.read_exact(&mut head).is_ok() && head == Spool::MAGIC {
        file = converted(file, path).map_err(named)?;
    }
    if about.is_file() {
        file.rewind().map_err(named)?;
    }
    let input: Box<dyn BufRead> = Box::new(BufReader::with_capacity(1 << 18, file));
    Ok((Reader::new(input), about.len()))
}

/// Converts a spool into a trace without a name.
fn converted(spool: File, path: &Path) -> std::io::Result<File> {
    let spool = Spool::open(spool)?.whole_rounds();
    let start = std::env::temp_dir().join(path.file_name().unwrap_or_default());
    let (file, name) = named_file::create_beside(&start, ".converted")?;
    std::fs::remove_file(&name)?;
    export::convert(&spool, &file, 0)?;
    Ok(file)
}

/// Counts what is written.
struct Counted<'a, W> {
    out: &'a mut W,
    bytes: &'a mut u64,
}

impl<W: Write> Write for Counted<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let n = self.out.write(bytes)?;
        *self.bytes += n as u64;
        Ok(n)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        self.out.flush()
    }
}
