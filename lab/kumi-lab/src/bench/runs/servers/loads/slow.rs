//! Effect of a thousand outstanding slow requests on other requests.

use crate::bench::contender::{Contender, Trouble};
use crate::bench::report::row::Sample;
use crate::bench::runs::servers::mounted::Mounted;
use crate::bench::runs::servers::serving::Setting;
use crate::bench::runs::servers::usage::{Family, Watch};
use crate::bench::runs::servers::{Bench, sample};

/// A slow disk, and a cache that holds only a little of the slow readers' data, but all of the
/// others'.
const SETTING: Setting = Setting { cache: "16m", delay: "50ms", gate: None };
const READERS: usize = 1_000;
const WARM_UP_MS: u64 = 200;
const SLICE_MS: u64 = 1_000;
const FULL_SLICE_MS: u64 = 2_000;

/// Blocks in a read of a slow reader. With one, there is the maximum number of requests, 20,000 a
/// second for the disk alone. With eight, requests take longer, and only their number changes.
const BLOCKS: [usize; 2] = [1, 8];

/// Runs the load once: the p99 of the other requests without and with slow ones.
pub fn once(bench: &Bench, contender: &Contender, cores: usize) -> Result<Vec<Sample>, Trouble> {
    let slice_ms = if bench.options.full { FULL_SLICE_MS } else { SLICE_MS };
    let mounted = Mounted::start(bench, contender, SETTING, cores)?;
    let family = Family::of(mounted.server());
    let (mut load, mut readers) = (mounted.load()?, mounted.load()?);
    load.ask(&format!("beside {WARM_UP_MS}"))?;
    let mut samples = Vec::new();
    for blocks in BLOCKS {
        let without = load.ask(&format!("beside {slice_ms}"))?;
        let idle = family.resources();
        let watch = Watch::begin(&family);
        readers.ask(&format!("slow {READERS} {blocks}"))?;
        load.ask(&format!("beside {WARM_UP_MS}"))?;
        readers.ask("reads")?;
        let with = load.ask(&format!("beside {slice_ms}"))?;
        let slow = readers.ask("reads")?;
        let loaded = watch.end();
        readers.ask(&format!("slow 0 {blocks}"))?;
        let lines = [
            format!("p99_without {} us", without.get("p99")?),
            format!("p99_with {} us", with.get("p99")?),
            format!("p99_ratio {} ratio", with.get("p99")? / without.get("p99")?),
            format!("p50_ratio {} ratio", with.get("p50")? / without.get("p50")?),
            format!("slow_reads {} 1/s", slow.get("rate")?),
            format!("kernel_threads_idle {} 1", idle.kernel_threads),
            format!("kernel_threads {} 1", loaded.kernel_threads),
            format!("pss {} MB", loaded.pss),
        ];
        for line in lines {
            samples.push(sample(contender, cores, &format!("{line} blocks={blocks}"))?);
        }
    }
    Ok(samples)
}
