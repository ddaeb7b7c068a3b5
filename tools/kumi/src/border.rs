//! `kumi border`: connects this machine with others, and lists them.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use clap::Subcommand;
use kumihimo_border::serve::Options;
use kumihimo_border::site::{self, Member};
use kumihimo_machine::border::{MachineRow, MachineState};

use crate::ask::Whose;
use crate::text::{Name, Plain, code, json_line, put, table, written};

#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    #[command(flatten)]
    options: Options,
    #[command(subcommand)]
    what: Option<What>,
}

/// What to do instead of serving.
#[derive(Subcommand)]
enum What {
    /// Make an authority, certificates and configurations for a small site, and print the lines
    /// that join the other machines
    Init {
        /// This machine, and where others reach its border: build7=10.0.0.7:7643
        #[arg(value_name = "NAME=HOST:PORT")]
        own: Member,
        /// Other machines
        #[arg(value_name = "NAME=HOST:PORT")]
        others: Vec<Member>,
    },
    /// Make a certificate and a configuration for one more machine, and print the lines that join
    /// it
    Add {
        /// The machine
        #[arg(value_name = "NAME=HOST:PORT")]
        machine: Member,
    },
    /// List this machine and those that its border knows
    List {
        /// Print one JSON object a line
        #[arg(long)]
        json: bool,
        #[command(flatten)]
        whose: Whose,
    },
}

/// Serves until a signal arrives, or does what the subcommand says.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let joined = match args.what {
        None => return kumihimo_border::serve::run(&args.options).map(|()| ExitCode::SUCCESS),
        Some(What::List { json, whose }) => return list(json, &whose),
        Some(What::Init { own, others }) => site::init(&args.options.folder()?, &own, &others)?,
        Some(What::Add { machine }) => site::add(&args.options.folder()?, &machine)?,
    };
    written(io::stdout().lock().write_all(joined.as_bytes()).map(|()| ExitCode::SUCCESS))
}

/// Lists the machines. Exit code 1 if some are unreachable.
fn list(json: bool, whose: &Whose) -> Result<ExitCode, String> {
    let rows = whose.machine()?.machines().map_err(|e| Plain(&e.to_string()).to_string())?;
    let whole = rows.iter().all(|row| row.state != MachineState::Unreachable);
    let mut out = BufWriter::new(io::stdout().lock());
    let shown = match json {
        true => rows.iter().try_for_each(|row| json_line(&mut out, row)),
        false => show(&mut out, &rows),
    };
    written(shown.and_then(|()| out.flush()).map(|()| code(whole)))
}

fn show(out: &mut impl Write, rows: &[MachineRow]) -> io::Result<()> {
    let heads = ["MACHINE", "STATE", "FOR", "PLACE", "EPOCH", "VERSION", "WHY"];
    let or_dash = |text: Option<&str>| Plain(text.unwrap_or("-")).to_string();
    table(out, heads, rows, |row, column, cell| match column {
        0 => put(cell, Name(&row.name)),
        1 => cell.push_str(match row.state {
            MachineState::Own => "this one",
            MachineState::Reachable => "reachable",
            MachineState::Unreachable => "unreachable",
        }),
        2 => put(cell, format_args!("{} s", row.seconds)),
        3 => cell.push_str(&or_dash(row.place.as_deref())),
        4 => match row.epoch {
            Some(epoch) => put(cell, epoch),
            None => cell.push('-'),
        },
        5 => cell.push_str(&or_dash(row.version.as_deref())),
        _ => put(cell, Plain(row.why.as_deref().unwrap_or_default())),
    })
}
