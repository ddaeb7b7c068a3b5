//! Attacks on the links of a gate.

use std::time::{Duration, Instant};

use kumihimo_bench_kit::Lateness;
use kumihimo_machine::client::{Error, Machine};

use super::{BENCH, FEWEST, SLICE_MS, samples as rows, to_last_core};
use crate::bench::contender::directory::Directory;
use crate::bench::contender::program::Program;
use crate::bench::contender::{Programs, Trouble, own_cores};
use crate::bench::plan::order::Order;
use crate::bench::plan::{self, Options};
use crate::bench::report::row::Sample;

const CALLS: [&str; 5] = ["callers=8", "bytes=64", "placement=scheduled", "check=whole", "by=copy"];
/// Time limit of a slice: an attack that succeeds blocks all for two minutes.
const PATIENCE: Duration = Duration::from_secs(150);

/// A server, its callers, and the attacker.
struct Peers {
    // Dropped first, so that the server sees the end of its clients.
    attacker: Program,
    callers: Program,
    _server: Program,
    directory: Directory,
}

impl Peers {
    fn start(options: &Options, programs: &Programs) -> Result<Peers, Trouble> {
        let directory = Directory::new(BENCH)?;
        let places = [directory.argument(), format!("place={}", directory.path().display())];
        let cores = own_cores();
        let (first, last) = (&cores[..1], &cores[cores.len() - 1..]);
        let start = |cores: &[usize], bench: &str, more: &[&str]| {
            let args: Vec<_> =
                more.iter().copied().chain(places.each_ref().map(|place| &**place)).collect();
            let contender = plan::hostile(options, &args);
            let mut program = Program::start(cores, contender.command(programs, bench, 1)?)?;
            match program.hear_within(PATIENCE)?.as_str() {
                "ready" => Ok(program),
                said => match said.strip_prefix("refused: ") {
                    Some(why) => Err(Trouble::Refused(why.to_owned())),
                    None => Err(format!("{bench} {more:?} printed {said:?}").into()),
                },
            }
        };
        let server = start(first, "rpc", &[&CALLS[..], &["side=server"]].concat())?;
        let callers = start(last, "rpc", &[&CALLS[..], &["side=client"]].concat())?;
        let attacker = start(last, BENCH, &[])?;
        Ok(Peers { attacker, callers, _server: server, directory })
    }

    /// Begins or ends the attack.
    fn attack(&mut self, on: bool) -> Result<(), String> {
        self.attacker.tell(if on { "on" } else { "off" })?;
        let said = self.attacker.hear_within(PATIENCE).map_err(|e| format!("the attacker: {e}"))?;
        match (on, said.as_str()) {
            (true, "0") => Err("the attacker holds no link".into()),
            _ => Ok(()),
        }
    }

    /// Latency of calls. An attack begins within the slice.
    fn calls(&mut self, ms: u64, attack: bool) -> Result<f64, String> {
        self.callers.tell(&ms.to_string())?;
        if attack {
            self.attack(true)?;
        }
        let said = self.callers.hear_within(PATIENCE).map_err(|e| format!("the callers: {e}"))?;
        if attack {
            self.attack(false)?;
        }
        let numbers: Vec<f64> = said.split(' ').filter_map(|word| word.parse().ok()).collect();
        match numbers.as_slice() {
            &[calls, _, _, p99] if calls >= FEWEST as f64 => Ok(p99),
            _ => Err(format!("the callers printed {said:?}")),
        }
    }

    /// Latency of `kumi ps`. An attack begins within the slice.
    fn lists(&mut self, length: Duration, attack: bool) -> Result<(f64, Option<f64>), String> {
        let machine = self.directory.machine()?;
        let asking = std::thread::spawn(move || {
            to_last_core()?;
            list(&machine, length).map_err(|e| e.to_string())
        });
        if attack {
            self.attack(true)?;
        }
        let late = asking.join().map_err(|_| "the lists panicked")??;
        if attack {
            self.attack(false)?;
        }
        Ok((late.us(0.99), Some(late.us(1.0))))
    }
}

/// Lists the microprocesses of all address spaces, again and again.
fn list(machine: &Machine, length: Duration) -> Result<Lateness, Error> {
    let mut late = Lateness::default();
    let begun = Instant::now();
    while begun.elapsed() < length || late.len() < FEWEST {
        let asked = Instant::now();
        for mut space in machine.spaces()? {
            space.microprocesses()?;
        }
        late.record(asked.elapsed());
    }
    Ok(late)
}

/// Runs all rounds.
pub fn run(options: &Options, programs: &Programs) -> Result<Vec<Sample>, Trouble> {
    let mut peers = Peers::start(options, programs)?;
    let mut order = Order::new(options.seed);
    let mut samples = Vec::new();
    peers.calls(SLICE_MS, false)?;
    for _ in 0..options.runs {
        for attack in order.round(2) {
            let calls = peers.calls(SLICE_MS, attack == 1)?;
            samples.extend(rows(options, ("gate", "linger"), attack == 1, (calls, None))?);
        }
        for attack in order.round(2) {
            let lists = peers.lists(Duration::from_millis(SLICE_MS), attack == 1)?;
            samples.extend(rows(options, ("control", "linger"), attack == 1, lists)?);
        }
    }
    Ok(samples)
}
