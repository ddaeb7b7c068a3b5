//! The modern load: `stat`, `pread`, `create` by one client and by sixteen, and sequential access
//! to one large file.

use crate::bench::contender::{Contender, Trouble};
use crate::bench::report::row::Sample;
use crate::bench::runs::servers::mounted::Mounted;
use crate::bench::runs::servers::serving::Setting;
use crate::bench::runs::servers::usage::{Family, Watch};
use crate::bench::runs::servers::{Bench, sample};

/// A cache that holds all data of the reads, and no delay.
const SETTING: Setting = Setting { cache: "256m", delay: "0us", gate: None };
pub const OPERATIONS: [&str; 3] = ["stat", "pread", "create"];
const CLIENTS: [usize; 2] = [1, 16];
const WARM_UP_MS: u64 = 80;
const SLICE_MS: u64 = 400;
const FULL_SLICE_MS: u64 = 1_000;

/// Runs the load once.
pub fn once(bench: &Bench, contender: &Contender, cores: usize) -> Result<Vec<Sample>, Trouble> {
    let slice_ms = if bench.options.full { FULL_SLICE_MS } else { SLICE_MS };
    let mounted = Mounted::start(bench, contender, SETTING, cores)?;
    let family = Family::of(mounted.server());
    let mut load = mounted.load()?;
    let mut lines = Vec::new();
    load.ask("warm")?;
    let watch = Watch::begin(&family);
    for clients in CLIENTS {
        for operation in OPERATIONS {
            load.ask(&format!("{operation} {clients} {WARM_UP_MS}"))?;
            let before = family.usage();
            let outcome = load.ask(&format!("{operation} {clients} {slice_ms}"))?;
            let cpu_us = family.usage().since(before).cpu_ms * 1e3 / outcome.get("ops")?;
            lines.extend([
                format!("{operation} {} 1/s clients={clients}", outcome.get("rate")?),
                format!("{operation}_p50 {} us clients={clients}", outcome.get("p50")?),
                format!("{operation}_p99 {} us clients={clients}", outcome.get("p99")?),
                format!("{operation}_cpu {cpu_us} us clients={clients}"),
            ]);
        }
    }
    let resources = watch.end();
    if mounted.server().is_some() {
        lines.push(format!("kernel_threads {} 1", resources.kernel_threads));
        lines.push(format!("pss {} MB", resources.pss));
    }
    if bench.options.full {
        for stream in ["read", "write"] {
            let outcome = load.ask(&format!("stream-{stream}"))?;
            lines.push(format!("sequential_{stream} {} MB/s", outcome.get("mb_s")?));
        }
    }
    lines.iter().map(|line| sample(contender, cores, line)).collect()
}
