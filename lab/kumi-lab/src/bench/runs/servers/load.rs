//! Load generator of `servers` as a separate process.

use std::path::PathBuf;

use super::loads::gate;

#[derive(clap::Args)]
pub struct Args {
    /// Mount point of the files
    root: PathBuf,
    /// Mount point of the clock
    clock: PathBuf,
    /// Only call the clock's gate with this name so many times
    #[arg(long, num_args = 2, value_names = ["NAME", "CALLS"])]
    gate: Option<Vec<String>>,
}

/// Executes commands from standard input until it ends.
pub fn run(args: Args) -> Result<(), String> {
    if let Some([name, calls]) = args.gate.as_deref() {
        let calls = calls.parse().map_err(|_| format!("{calls}: not a number of calls"))?;
        println!("{}", gate::call(name, calls)?);
        return Ok(());
    }
    kumihimo_bench_files::obey(&args.root, &args.clock).map_err(|e| format!("load: {e}"))
}
