//! The paper's second load (P1): `date`, `ls`, `make`, `pwd` and `whoami` on the mount. Their
//! requests for the time go to the clock.

use kumihimo_bench_files::COMMANDS;

use super::paper;
use crate::bench::contender::{Contender, Trouble};
use crate::bench::report::row::Sample;
use crate::bench::runs::servers::mounted::Mounted;
use crate::bench::runs::servers::{Bench, sample};

/// Number of executions of each command in a run.
const TIMES: u32 = 5;

/// Runs the load once. Returns a row for each command, in microseconds.
pub fn once(bench: &Bench, contender: &Contender, cores: usize) -> Result<Vec<Sample>, Trouble> {
    let shim = bench.stores.shim()?;
    let mounted = Mounted::start(bench, contender, paper::SETTING, cores)?;
    let outcome = mounted.load()?.ask(&format!("commands {} {TIMES}", shim.display()))?;
    let row = |(name, _): &(&str, _)| {
        sample(contender, cores, &format!("{name} {} us", outcome.get(name)?))
    };
    COMMANDS.iter().map(row).collect()
}
