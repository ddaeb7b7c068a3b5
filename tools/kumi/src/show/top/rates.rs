//! Rates of an address space's counters.

use std::time::Duration;

use kumihimo_machine::handler::Metric;
use kumihimo_resource::id::Id;

/// Names of the displayed metrics. A missing one is displayed as unknown.
const SWITCHES: &str = "kumihimo_vp_switches_total";
const SPAWNED: &str = "kumihimo_spawned_total";
const CPU: &str = "kumihimo_vp_cpu_seconds_total";
const BATCHES: &str = "kumihimo_batches_total";
const REFUSED: &str = "kumihimo_control_refused_total";
const MISBEHAVED: &str = "kumihimo_misbehaved_total";
/// Label that distinguishes virtual processors.
const VP: &str = "vp";

/// Totals since the start of an address space.
#[derive(Clone, Debug, Default, PartialEq)]
struct Totals {
    switches: Option<f64>,
    spawned: Option<f64>,
    batches: Option<f64>,
    cpu: Option<f64>,
    by_vp: Vec<(String, f64)>,
}

/// Rates per second between the last two queries; `None` if unknown.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Rates {
    last: Option<(Duration, Id, Totals)>,
    /// Context switches.
    pub switches: Option<f64>,
    /// Microprocesses started.
    pub spawned: Option<f64>,
    /// Batches of system calls.
    pub batches: Option<f64>,
    /// Seconds of CPU time of the virtual processors.
    pub cpu: Option<f64>,
    /// Context switches of each virtual processor.
    pub by_vp: Vec<(String, f64)>,
    /// Requests from outside that were refused, in total.
    pub refused: u64,
    /// Number of VPs that were overridden, in total.
    pub misbehaved: u64,
}

fn named<'a>(metrics: &'a [Metric], name: &str) -> Option<&'a Metric> {
    metrics.iter().find(|metric| metric.name == name)
}

fn sum(metrics: &[Metric], name: &str) -> Option<f64> {
    named(metrics, name)
        .map(|metric| metric.samples.iter().fold(0.0, |all, (_, value)| all + value))
}

impl Totals {
    fn of(metrics: &[Metric]) -> Totals {
        let switches = named(metrics, SWITCHES).into_iter().flat_map(|metric| &metric.samples);
        let by_vp = switches.filter_map(|(labels, value)| {
            let (_, vp) = labels.iter().find(|(name, _)| name == VP)?;
            Some((vp.clone(), *value))
        });
        Totals {
            switches: sum(metrics, SWITCHES),
            spawned: sum(metrics, SPAWNED),
            batches: sum(metrics, BATCHES),
            cpu: sum(metrics, CPU),
            by_vp: by_vp.collect(),
        }
    }
}

/// Rate of a counter. A counter that has decreased was reset: its rate is unknown until the next
/// query.
fn rate(before: Option<f64>, now: Option<f64>, seconds: f64) -> Option<f64> {
    let grown = now? - before?;
    (grown >= 0.0 && seconds > 0.0).then(|| grown / seconds)
}

impl Rates {
    /// Records the metrics of address space `id` at time `at`. Another address space with the same
    /// number starts without rates.
    pub fn seen(&mut self, at: Duration, id: Id, metrics: &[Metric]) {
        let now = Totals::of(metrics);
        let (seconds, before) = match &self.last {
            Some((then, of, before)) if *of == id => {
                (at.saturating_sub(*then).as_secs_f64(), before.clone())
            }
            _ => (0.0, Totals::default()),
        };
        self.switches = rate(before.switches, now.switches, seconds);
        self.spawned = rate(before.spawned, now.spawned, seconds);
        self.batches = rate(before.batches, now.batches, seconds);
        self.cpu = rate(before.cpu, now.cpu, seconds);
        let of_vp = |(vp, value): &(String, f64)| {
            let before = before.by_vp.iter().find(|(name, _)| name == vp).map(|(_, value)| *value);
            Some((vp.clone(), rate(before, Some(*value), seconds)?))
        };
        self.by_vp = now.by_vp.iter().filter_map(of_vp).collect();
        self.refused = sum(metrics, REFUSED).unwrap_or_default() as u64;
        self.misbehaved = sum(metrics, MISBEHAVED).unwrap_or_default() as u64;
        self.last = Some((at, id, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn metrics(switches: [f64; 2], spawned: f64) -> Vec<Metric> {
        let metric = |name: &str, samples| Metric {
            name: name.to_owned(),
            help: String::new(),
            counter: true,
            samples,
        };
        let vp = |n: &str, value| (vec![(VP.to_owned(), n.to_owned())], value);
        vec![
            metric(SWITCHES, vec![vp("0", switches[0]), vp("1", switches[1])]),
            metric(SPAWNED, vec![(vec![], spawned)]),
            metric(CPU, vec![vp("0", switches[0] / 40.0), vp("1", 1.0)]),
            metric(MISBEHAVED, vec![(vec![], 2.0)]),
        ]
    }

    #[test]
    fn rates_are_differences_between_two_samples() {
        let (one, other): (Id, Id) =
            ("1.space.0.1".parse().unwrap(), "1.space.0.2".parse().unwrap());
        let mut rates = Rates::default();
        rates.seen(Duration::from_secs(1), one, &metrics([10.0, 5.0], 3.0));
        assert_eq!((rates.switches, rates.by_vp.len(), rates.misbehaved), (None, 0, 2));
        rates.seen(Duration::from_secs(3), one, &metrics([30.0, 5.0], 4.0));
        assert_eq!((rates.switches, rates.spawned, rates.batches), (Some(10.0), Some(0.5), None));
        assert_eq!(rates.cpu, Some(0.25));
        assert_eq!(rates.by_vp, [("0".to_owned(), 10.0), ("1".to_owned(), 0.0)]);
        // Another runtime in the same process, and another process with the same number.
        rates.seen(Duration::from_secs(4), one, &metrics([1.0, 1.0], 1.0));
        assert_eq!((rates.switches, rates.spawned), (None, None));
        rates.seen(Duration::from_secs(5), other, &metrics([9.0, 9.0], 9.0));
        assert_eq!((rates.switches, rates.by_vp.len()), (None, 0));
    }
}
