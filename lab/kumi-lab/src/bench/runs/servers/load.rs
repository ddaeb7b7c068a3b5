//! The load of `servers`, as a process of its own.

use std::path::PathBuf;

use super::loads::gate;

#[derive(clap::Args)]
pub struct Args {
    /// Where the files are mounted
    root: PathBuf,
    /// Where the clock is
    clock: PathBuf,
    /// Call the clock's gate of this name so often, and nothing else
    #[arg(long, num_args = 2, value_names = ["NAME", "CALLS"])]
    gate: Option<Vec<String>>,
}

/// Obeys its standard input until that ends.
pub fn run(args: Args) -> Result<(), String> {
    if let Some([name, calls]) = args.gate.as_deref() {
        let calls = calls.parse().map_err(|_| format!("{calls}: not a number of calls"))?;
        println!("{}", gate::call(name, calls)?);
        return Ok(());
    }
    kumihimo_bench_files::obey(&args.root, &args.clock).map_err(|e| format!("load: {e}"))
}
