//! The paper's first load (P1): `fileread` and `time`, each alone, then both concurrently.

use kumihimo_bench_files::Outcome;

use crate::bench::contender::{Contender, Trouble};
use crate::bench::report::row::Sample;
use crate::bench::runs::servers::mounted::{Load, Mounted};
use crate::bench::runs::servers::serving::Setting;
use crate::bench::runs::servers::usage::{Family, Watch};
use crate::bench::runs::servers::{Bench, sample};

/// A disk with a delay, and a cache that holds only a little of the data.
pub const SETTING: Setting = Setting { cache: "4m", delay: "200us", gate: None };
const READS: u32 = 3_000;
const REQUESTS: u32 = 10_000;

fn value(metric: &str, value: f64, unit: &str) -> String {
    format!("{metric} {value} {unit}")
}

/// Runs the load once: `fileread_alone`, `time_alone`, `fileread_both`, `time_both`, and the totals
/// of both.
pub fn once(bench: &Bench, contender: &Contender, cores: usize) -> Result<Vec<Sample>, Trouble> {
    let mounted = Mounted::start(bench, contender, SETTING, cores)?;
    let family = Family::of(mounted.server());
    let (mut reader, mut asker) = (mounted.load()?, mounted.load()?);
    let fileread = format!("fileread {READS} {}", bench.options.seed);
    let time = format!("time {REQUESTS}");
    let watch = Watch::begin(&family);

    let mut lines = Vec::new();
    let alone = |load: &mut Load, line: &str| -> Result<(Outcome, f64), Trouble> {
        load.prepare(line)?;
        let before = family.usage();
        load.go()?;
        let outcome = load.hear(line)?;
        Ok((outcome, family.usage().since(before).cpu_ms))
    };
    for (name, load, line) in [("fileread", &mut reader, &fileread), ("time", &mut asker, &time)] {
        let (outcome, server_ms) = alone(load, line)?;
        lines.push(value(&format!("{name}_alone"), outcome.get("ms")?, "ms"));
        lines.push(value(
            &format!("{name}_alone_system"),
            outcome.get("system_ms")? + server_ms,
            "ms",
        ));
        if name == "time" {
            lines.push(value("null_request", outcome.get("ms")? * 1e3 / f64::from(REQUESTS), "us"));
        }
    }

    reader.prepare(&fileread)?;
    asker.prepare(&time)?;
    let loads = Family::both(reader.id(), asker.id());
    let before = (family.usage(), loads.usage());
    reader.go()?;
    asker.go()?;
    let [asked, read] = [asker.hear(&time)?, reader.hear(&fileread)?];
    let (server, loaded) = (family.usage().since(before.0), loads.usage().since(before.1));
    let sum = |name| Ok::<_, String>(asked.get(name)? + read.get(name)?);
    let resources = watch.end();
    lines.extend([
        value("time_both", asked.get("ms")?, "ms"),
        value("fileread_both", read.get("ms")?, "ms"),
        // As in the paper: from the start of both to the end of both.
        value("both", asked.get("ms")?.max(read.get("ms")?), "ms"),
        value("user_both", sum("user_ms")?, "ms"),
        // System time of the clients and of the servers, as in the paper.
        value("system_both", sum("system_ms")? + server.cpu_ms, "ms"),
        value("switches_both", server.switches + loaded.switches, "1"),
        value("kernel_threads", resources.kernel_threads, "1"),
        value("pss", resources.pss, "MB"),
    ]);
    lines.iter().map(|line| sample(contender, cores, line)).collect()
}
