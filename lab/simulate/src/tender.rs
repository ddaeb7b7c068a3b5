//! Check of [`locks`](crate::locks) against P3's own figures (Tender on four cores of 3.4 GHz).
//!
//! The paper gives no times of sections, only times on 2 and 4 cores relative to one core. Five of
//! them determine the parameters of the model:
//!
//! - the name tree's share of `create`: by kind, 2 cores: -24.5 %.
//! - the cost of handing a lock over, for each spinning waiter: `create` by kind, 4 cores: -19.3 %.
//!   On 2 cores one core waits, on 4 cores three do; each costs a 150th of an operation.
//! - the name tree's share of `region`: by kind, 2 cores: -26.0 %.
//! - the container's share of `message`: by kind, 4 cores: -3.1 % (table 3: 0.00024 % a line, times
//!   128 lines; the text states no gain).
//! - the part of it that containers have in common: by id, 4 cores: -55.2 %.
//!
//! The other three are predicted, and are within 1.5 % of the time on one core (a bound set when
//! the figures were known): `region` by kind, `create` and `region` by id on four cores. The model
//! assumes what the paper states about the locks: by kind, the name tree has one lock; by id, one
//! for each kind. It also assumes that both kinds use the tree equally, that cores spin, and that
//! the tree is the limit by kind as well. The paper states the last point only for `id`. A kind's
//! own lock of that length would explain the figures by kind, too. But it would not exist by id,
//! and the tree alone would have to be as long by coincidence. The share of the resources' own
//! sections in the rest of an operation cannot be derived from the figures, and has no effect on
//! them.
//!
//! Discrepancies and open points:
//! - By id the simulation gains 1.1 to 1.4 % more than the paper. All of its sections have the same
//!   length and synchronise. Real ones vary, which causes some waits.
//! - The paper explains its best result at two cores by two kinds that can be operated on at once.
//!   In the model this is not the limit: with the kinds' own locks only, 4 cores would not be
//!   slower than 2. Both results follow from the single lock of the tree and from spinning; with
//!   queued locks, 4 cores would keep the gain of 2.
//! - `message` has as many unknowns as figures, so it is described, not predicted. With the
//!   parameters from its two figures, two cores should gain 5.7 % by kind; the text states no gain.
//! - Beyond four cores there are no figures. The model predicts that spinning makes `kind` slower
//!   than one core from 16 cores on, and that `id` is best at 4, provided that a hand-over keeps
//!   the same cost for each waiter.

use crate::locks::{Load, Locking, Machine, Times, Waiting, relative};

/// Duration of an operation. The paper does not give it, and the ratios do not depend on it.
const OPERATION_NS: f64 = 1e6;
/// Cost of a hand-over for each spinning waiter, as a fraction of an operation. An operation visits
/// the name tree four times.
const HAND_OVER: f64 = (0.807 - 0.755) / 2.0 / 4.0;

/// The same as a text for reports.
pub const FINDINGS: &str = "P3: five figures of the paper determine the model: the share of the name tree in \
    create and in region, the share of the container in message, the share common to all containers, and the cost of \
    a transfer per spinning waiter. Three figures are predicted within 1.5 % of the time on one core (this bound was \
    set after the figures were known). By id, the simulation gains 1.1 to 1.4 % more than the paper, because its \
    critical sections have equal lengths and become synchronised. By kind, the loss between 2 and 4 cores is the \
    effect of spinning; queued locks would have kept the gain of 2 cores. For message, the model has as many \
    unknowns as figures, so it describes them without a prediction. Table 3 of the paper has 3.1 % less time by \
    kind, and the text of the paper has no gain. The paper has no figures for more than 4 cores.";

/// A figure of the paper and its simulated value: time relative to one core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// The load.
    pub load: &'static str,
    /// The locking design.
    pub locking: Locking,
    /// Number of cores.
    pub cores: usize,
    /// The paper's value.
    pub paper: f64,
    /// True if an unknown of the model was derived from this figure.
    pub fitted: bool,
    /// The simulated value.
    pub simulated: f64,
}

/// The paper's machine, as far as its figures determine it.
#[must_use]
pub fn times() -> Times {
    let load = |kinds, resource: f64, names: f64, shared: f64| Load {
        kinds,
        total_ns: OPERATION_NS,
        resource_ns: resource * OPERATION_NS,
        names_ns: names * OPERATION_NS,
        shared_ns: shared * OPERATION_NS,
    };
    // On 2 cores, one core waits at every hand-over of the tree's lock.
    let opens = |on_two: f64| {
        let names = on_two - 4.0 * HAND_OVER;
        load(2, (1.0 - names) / 2.0, names, 0.0)
    };
    // On 4 cores, three cores wait at every hand-over of the container's lock, and 2.1 on average
    // for the parts that containers share.
    let (container, shared) = (0.969 - 2.0 * 3.0 * HAND_OVER, 0.448 - 2.0 * 2.1 * HAND_OVER);
    Times {
        machine: "Tender, 4 cores of 3.4 GHz (P3); the paper gives no times: an operation is taken as 1 ms".to_owned(),
        hand_over_ns: HAND_OVER * OPERATION_NS,
        create: opens(0.755),
        region: opens(0.740),
        message: load(1, container - shared, 0.0, shared),
    }
}

/// All figures of the paper.
#[must_use]
pub fn check(seed: u64) -> Vec<Figure> {
    let times = times();
    let simulated = |name: &str, locking, cores| {
        let load = times.loads().into_iter().find(|(other, _)| *other == name).expect("a load").1;
        let machine =
            Machine { cores, waiting: Waiting::Spinning, hand_over_ns: times.hand_over_ns };
        relative(&load, locking, &machine, seed)
    };
    [
        ("create", Locking::Kind, 2, 0.755, true),
        ("create", Locking::Kind, 4, 0.807, true),
        ("region", Locking::Kind, 2, 0.740, true),
        ("message", Locking::Kind, 4, 0.969, true),
        ("message", Locking::Id, 4, 0.448, true),
        ("region", Locking::Kind, 4, 0.792, false),
        ("create", Locking::Id, 4, 0.389, false),
        ("region", Locking::Id, 4, 0.384, false),
    ]
    .map(|(load, locking, cores, paper, fitted)| Figure {
        load,
        locking,
        cores,
        paper,
        fitted,
        simulated: simulated(load, locking, cores),
    })
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_figures_are_reproduced_and_others_predicted() {
        for seed in 0..5 {
            for figure in check(seed) {
                let within = if figure.fitted { 0.005 } else { 0.015 };
                assert!((figure.simulated - figure.paper).abs() <= within, "{figure:?}");
            }
        }
    }

    #[test]
    fn undetermined_times_do_not_change_the_result() {
        let times = times();
        for (load, on_four) in [(times.create, [0.807, 0.389]), (times.region, [0.792, 0.384])] {
            let rest = load.total_ns - load.names_ns;
            for inside in [0.0, 0.5, 1.0] {
                let load = Load { resource_ns: rest * inside, ..load };
                for (locking, paper) in [Locking::Kind, Locking::Id].into_iter().zip(on_four) {
                    let machine = Machine {
                        cores: 4,
                        waiting: Waiting::Spinning,
                        hand_over_ns: times.hand_over_ns,
                    };
                    assert!(
                        (relative(&load, locking, &machine, 1) - paper).abs() <= 0.015,
                        "{inside}"
                    );
                }
            }
        }
    }

    #[test]
    fn queued_locks_keep_the_gain_of_two_cores() {
        let times = times();
        let on = |cores| {
            let machine =
                Machine { cores, waiting: Waiting::Fifo, hand_over_ns: times.hand_over_ns };
            relative(&times.create, Locking::Kind, &machine, 1)
        };
        assert!((on(4) - on(2)).abs() < 0.001, "{} {}", on(2), on(4));
    }

    #[test]
    fn times_of_the_paper_are_possible() {
        assert_eq!(times().check(), Ok(()));
    }
}
