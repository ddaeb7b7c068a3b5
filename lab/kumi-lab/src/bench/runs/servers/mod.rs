//! `servers`: a file server and clock in five organisations, under the loads of P1 and under modern
//! ones, compared with other file servers.
//!
//! Each contender is mounted, warmed up, measured and unmounted, one at a time, round after round.

mod derived;
mod load;
mod loads;
mod mounted;
mod serving;
mod stores;
pub mod usage;
mod words;

use kumihimo_bench_kit::raise_descriptors;

pub use load::{Args, run as obey};
pub use words::notes;

use crate::bench::contender::{Contender, Missing, Programs, Runtime, Trouble};
use crate::bench::plan::Options;
use crate::bench::report::row::{Identity, Sample};
use stores::Stores;

const BENCH: &str = "servers";

/// Parameters of one measurement.
struct Bench<'a> {
    options: &'a Options,
    programs: &'a Programs,
    stores: &'a Stores,
}

/// Runs all rounds, and computes the combined rows.
pub fn run(options: &Options, programs: &Programs, missing: &mut Missing) -> Vec<Sample> {
    raise_descriptors();
    let stores = match Stores::new() {
        Ok(stores) => stores,
        Err(trouble) => {
            missing.note("servers", trouble);
            return Vec::new();
        }
    };
    let bench = Bench { options, programs, stores: &stores };
    let mut samples = crate::bench::rounds(BENCH, options, missing, |contender, cores| {
        match contender.value("load") {
            Some("paper") => loads::paper::once(&bench, contender, cores),
            Some("commands") => loads::commands::once(&bench, contender, cores),
            Some("gate") => loads::gate::once(&bench, contender, cores),
            Some("slow") => loads::slow::once(&bench, contender, cores),
            _ => loads::modern::once(&bench, contender, cores),
        }
    });
    samples.extend(derived::all(&samples));
    samples
}

/// All keys of the contender's rows. A rival has its own name, and the minimal server is the floor.
fn identity(contender: &Contender, cores: usize) -> Identity {
    let mut identity = contender.identity(BENCH, cores);
    if contender.runtime == Runtime::Files {
        identity.runtime = match contender.value("server").unwrap_or_default() {
            "memory" | "memfs_ll" => "floor",
            "kernel" => "kernel-ext2",
            other => other,
        }
        .to_owned();
    }
    let keys = ["load", "organisation", "threads", "store"];
    let said =
        keys.iter().filter_map(|key| Some(((*key).to_owned(), contender.value(key)?.to_owned())));
    identity.keys = said.chain([("cores".to_owned(), cores.to_string())]).collect();
    if contender.value("server") == Some("memfs_ll") {
        identity.keys.insert("threads".to_owned(), "memfs_ll".to_owned());
    }
    identity
}

/// A sample of this run.
fn sample(contender: &Contender, cores: usize, line: &str) -> Result<Sample, Trouble> {
    Ok(Sample::parse(line, &identity(contender, cores))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_names_server_and_store() {
        let contender = |runtime, line: &str| Contender {
            runtime,
            variant: "-",
            queue: "-".into(),
            args: line.split(' ').map(str::to_owned).collect(),
            at_most: 1,
        };
        let floor = identity(
            &contender(Runtime::Files, "load=modern server=memory threads=2 store=memory"),
            2,
        );
        assert_eq!(
            (floor.runtime.as_str(), floor.keys["threads"].as_str(), floor.vps),
            ("floor", "2", 2)
        );
        let ours = identity(
            &contender(Runtime::Kumihimo, "load=paper organisation=processes threads=1 store=ext2"),
            1,
        );
        let keys: Vec<_> = ours.keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
        assert_eq!(
            keys,
            ["cores=1", "load=paper", "organisation=processes", "store=ext2", "threads=1"]
        );
    }
}
