//! Kumihimo's side of one benchmark as a separate process, with the same command line and output as
//! the rivals' programs.

use kumihimo_bench_kit::Request;

#[derive(clap::Args)]
pub struct Args {
    /// BENCH [--vps N] [--variant V] [--queue Q] [KEY=VALUE ...]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    line: Vec<String>,
}

/// Runs the benchmark.
pub fn run(args: Args) -> Result<(), String> {
    let request = Request::parse(args.line).map_err(|e| e.to_string())?;
    kumihimo_bench::run(&request)
}

/// Default queue design.
pub fn default_queue() -> &'static str {
    kumihimo_bench::default_queue()
}
