//! Our side of one benchmark, as a process of its own: the same command line and output as the rival programs have.

#[derive(clap::Args)]
pub struct Args {
    /// BENCH [--vps N] [--variant V] [--queue Q] [KEY=VALUE ...]
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    line: Vec<String>,
}

/// Runs it.
pub fn run(args: Args) -> Result<(), String> {
    let request = kumihimo_bench_kit::Request::parse(args.line).map_err(|e| e.to_string())?;
    Err(format!("{}: no such benchmark", request.bench))
}

/// The queue design that runs unless another is asked for.
pub fn default_queue() -> &'static str {
    "ring"
}
