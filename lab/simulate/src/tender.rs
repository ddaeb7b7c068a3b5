//! The check of [`locks`](crate::locks) against P3's own figures (Tender on four cores of 3.4 GHz).
//!
//! The paper gives no times of sections, only times on 2 and 4 cores over that on one. Five of them
//! determine what the model needs:
//!
//! - the name tree's share of `create`: by kind, 2 cores: -24.5 %.
//! - what handing a lock over costs, for each spinning waiter: `create` by kind, 4 cores: -19.3 %.
//!   On 2 cores one waits, on 4 three do: each costs a 150th of an operation.
//! - the name tree's share of `region`: by kind, 2 cores: -26.0 %.
//! - the container's share of `message`: by kind, 4 cores: -3.1 % (table 3: 0.00024 % a line, times
//!   128 lines; the text says that nothing is gained).
//! - of that, what the kind has in common: by id, 4 cores: -55.2 %.
//!
//! The other three are predicted, and come out within 1.5 % of the time on one core (a bound that
//! was set when they were known): `region` by kind, `create` and `region` by id on four cores.
//! Assumed is what the paper says of the locks: by kind the name tree has one, by id one a kind;
//! that both kinds use it alike; that cores spin; and that by kind, too, it is the tree that
//! limits. The paper says so of `id` only. A kind's own lock of that length would explain the
//! figures by kind as well, but by id it would be gone, and the tree alone would have to be as long
//! by chance. How much of the rest of an operation lies in the resources' own sections cannot be
//! told from the figures, and does not matter to them.
//!
//! What does not fit or cannot be checked:
//! - By id the simulation gains 1.1 to 1.4 % more than the paper. Its sections are all of one
//!   length and fall into step; real ones vary, and then some wait.
//! - The paper explains its best at two cores by two kinds that can be operated on at once. In
//!   the model that is not what limits: were it only the kinds' own locks, 4 cores would not lose
//!   against 2. Both follow from the one lock of the tree and from spinning; queued locks would
//!   keep on 4 cores what was gained on 2.
//! - `message` has as many unknowns as figures: it is described, not predicted. With what its two
//!   figures leave, two cores should have gained 5.7 % by kind; the text says nothing was.
//! - Beyond four cores there are no figures. That spinning makes `kind` slower than one core from
//!   16 cores on, and that `id` is best at 4, holds if a hand-over goes on costing the same for
//!   each waiter.

use crate::locks::{Load, Locking, Machine, Times, Waiting, relative};

/// What an operation is long: the paper does not say, and the ratios do not depend on it.
const OPERATION_NS: f64 = 1e6;
/// Cost of a hand-over for each spinning waiter, in operations. The name tree is visited four times
/// in one.
const HAND_OVER: f64 = (0.807 - 0.755) / 2.0 / 4.0;

/// The same for a report.
pub const FINDINGS: &str = "P3: five of the paper's figures determine the model (the name tree's share of create and of region, the container's \
    share of message and what containers have in common, the cost of a hand-over for each spinning waiter), three are predicted, within 1.5 % of the time on one core (a bound set when they were known). \
    By id the simulation gains 1.1 to 1.4 % more: its sections are all of one length and fall into step. The loss by kind between 2 and 4 cores \
    follows from spinning; queued locks would have kept what 2 cores gained. message has as many unknowns as figures: described, not predicted; \
    and table 3 says 3.1 % less time by kind, where the text says none. Beyond 4 cores the paper has no figures.";

/// One figure of the paper's, and what the simulation makes of it: time over that on one core.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    /// Of which load.
    pub load: &'static str,
    /// Under which design.
    pub locking: Locking,
    /// On how many cores.
    pub cores: usize,
    /// The paper's.
    pub paper: f64,
    /// Whether the model's unknowns were taken from it.
    pub fitted: bool,
    /// The simulation's.
    pub simulated: f64,
}

/// The paper's machine, as far as its figures tell.
#[must_use]
pub fn times() -> Times {
    let load = |kinds, resource: f64, names: f64, shared: f64| Load {
        kinds,
        total_ns: OPERATION_NS,
        resource_ns: resource * OPERATION_NS,
        names_ns: names * OPERATION_NS,
        shared_ns: shared * OPERATION_NS,
    };
    // On 2 cores one waits whenever the tree is handed over.
    let opens = |on_two: f64| {
        let names = on_two - 4.0 * HAND_OVER;
        load(2, (1.0 - names) / 2.0, names, 0.0)
    };
    // On 4 cores three wait whenever the container is handed over, and 2.1 in the mean for what
    // containers share.
    let (container, shared) = (0.969 - 2.0 * 3.0 * HAND_OVER, 0.448 - 2.0 * 2.1 * HAND_OVER);
    Times {
        machine: "Tender, 4 cores of 3.4 GHz (P3); the paper gives no times: an operation is taken as 1 ms".to_owned(),
        hand_over_ns: HAND_OVER * OPERATION_NS,
        create: opens(0.755),
        region: opens(0.740),
        message: load(1, container - shared, 0.0, shared),
    }
}

/// All of the paper's figures.
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
    fn what_was_fitted_comes_out_and_the_rest_is_predicted() {
        for seed in 0..5 {
            for figure in check(seed) {
                let within = if figure.fitted { 0.005 } else { 0.015 };
                assert!((figure.simulated - figure.paper).abs() <= within, "{figure:?}");
            }
        }
    }

    #[test]
    fn what_the_figures_leave_open_does_not_matter() {
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
    fn queued_locks_would_have_kept_what_two_cores_gained() {
        let times = times();
        let on = |cores| {
            let machine =
                Machine { cores, waiting: Waiting::Fifo, hand_over_ns: times.hand_over_ns };
            relative(&times.create, Locking::Kind, &machine, 1)
        };
        assert!((on(4) - on(2)).abs() < 0.001, "{} {}", on(2), on(4));
    }

    #[test]
    fn the_papers_times_can_be() {
        assert_eq!(times().check(), Ok(()));
    }
}
