//! P1's second load: `date`, `ls`, `make`, `pwd` and `whoami` on the mount, their questions for the
//! time asked of the clock.

use kumihimo_bench_files::COMMANDS;

use super::paper;
use crate::bench::contender::{Contender, Trouble};
use crate::bench::report::row::Sample;
use crate::bench::runs::servers::mounted::Mounted;
use crate::bench::runs::servers::{Bench, sample};

/// Each command so often, a run.
const TIMES: u32 = 5;

/// One run: a row a command, microseconds.
pub fn once(bench: &Bench, contender: &Contender, cores: usize) -> Result<Vec<Sample>, Trouble> {
    let shim = bench.stores.shim()?;
    let mounted = Mounted::start(bench, contender, paper::SETTING, cores)?;
    let outcome = mounted.load()?.ask(&format!("commands {} {TIMES}", shim.display()))?;
    let row = |(name, _): &(&str, _)| {
        sample(contender, cores, &format!("{name} {} us", outcome.get(name)?))
    };
    COMMANDS.iter().map(row).collect()
}
