//! When a call is made by itself, and when it waits for others.

use crate::call::LARGEST;
use crate::costs::Costs;
use crate::op::Kind;

/// When batches are made, and how many calls start one. A batch also starts when nothing else is
/// runnable, and at a deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Where it pays, as far as that is known: enough others are runnable that a batch of theirs
    /// would be cheaper, by the measured costs, than plain calls; or others use the same object, so
    /// that calls can become one. Else plain calls at once: thin traffic waits for nobody.
    #[default]
    Adaptive,
    /// Every call that may be in a batch is; so many start it.
    Fixed(usize),
    /// The paper's threshold: as many as there are microprocesses times the share of their calls
    /// that may be batched (equation 6), if that is more than D/(D-t) (equation 5). A kind with
    /// t >= D is never batched.
    Paper,
    /// Plain calls only.
    Off,
}

/// A name that is no policy's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPolicy(String);

impl std::fmt::Display for BadPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} is no policy of batches: adaptive, paper, off or fixed=N with N from 1 to {LARGEST} is wanted",
            self.0
        )
    }
}

impl std::error::Error for BadPolicy {}

/// As [`Display`](std::fmt::Display) shows it, or as `KUMI_LAB=batch=...` has it (`fixed:3`).
impl std::str::FromStr for Policy {
    type Err = BadPolicy;

    fn from_str(text: &str) -> Result<Policy, BadPolicy> {
        let asked = kumihimo_config::Batch::parse(&text.replacen('=', ":", 1));
        asked.map(Policy::from).ok_or_else(|| BadPolicy(text.to_owned()))
    }
}

/// As `KUMI_LAB=batch=...` asks.
impl From<kumihimo_config::Batch> for Policy {
    fn from(asked: kumihimo_config::Batch) -> Policy {
        match asked {
            kumihimo_config::Batch::Adaptive => Policy::Adaptive,
            kumihimo_config::Batch::Paper => Policy::Paper,
            kumihimo_config::Batch::Fixed(n) => Policy::Fixed(n),
            kumihimo_config::Batch::Off => Policy::Off,
        }
    }
}

impl std::fmt::Display for Policy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Policy::Adaptive => f.write_str("adaptive"),
            Policy::Fixed(n) => write!(f, "fixed={n}"),
            Policy::Paper => f.write_str("paper"),
            Policy::Off => f.write_str("off"),
        }
    }
}

/// What a policy goes by.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// Calls that wait for their batch already.
    pub waiting: usize,
    /// Microprocesses that could make one before those: runnable here, of the caller's level or
    /// above.
    pub runnable: usize,
    /// Microprocesses alive, per virtual processor.
    pub living: usize,
    /// Others use the object of the call too.
    pub shared: bool,
    /// Part of all calls that may be batched, 0 to 1.
    pub share: f64,
}

/// What becomes of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is made by itself, at once.
    Plain,
    /// It waits until so many wait, itself counted.
    Wait(usize),
}

const FIXED: u32 = 16;

/// Nanoseconds that a call in a batch costs its microprocess besides: to leave, and to be made
/// runnable again. Measured: `kumi bench syscall-batch`.
const LEAVING: f64 = 80.0;

/// Equal questions that are worth a batch. Measured: `kumi bench syscall-batch`, and `transaction`
/// for what waiting does where traffic is thin.
const NOPS: usize = 4;

impl Policy {
    /// As a number, for one atomic word.
    pub const fn to_word(self) -> u32 {
        match self {
            Policy::Adaptive => 0,
            Policy::Paper => 1,
            Policy::Off => 2,
            Policy::Fixed(n) => FIXED + n as u32,
        }
    }

    /// The reverse of [`to_word`](Policy::to_word).
    pub const fn of_word(word: u32) -> Policy {
        match word {
            0 => Policy::Adaptive,
            1 => Policy::Paper,
            n if n > FIXED => Policy::Fixed((n - FIXED) as usize),
            _ => Policy::Off,
        }
    }

    /// How many have to be there that [`Adaptive`](Policy::Adaptive) has calls of `kind` that share
    /// no object wait for each other. `None`: it never has.
    pub fn gathers_from(self, kind: Kind, costs: &Costs) -> Option<usize> {
        match (self, kind) {
            (Policy::Adaptive, _) if kind.is_always_plain() => None,
            // Equal questions get one answer, which is less than the costs say; but its waiter
            // waits.
            (Policy::Adaptive, Kind::Nop) => costs.of(kind).map(|_| NOPS),
            (Policy::Adaptive, _) => costs.of(kind).and_then(|cost| cost.pays_from(LEAVING)),
            _ => None,
        }
    }

    /// What becomes of a call of `kind`.
    pub fn decide(self, kind: Kind, costs: &Costs, now: Situation) -> Decision {
        if kind.is_always_plain() {
            return Decision::Plain;
        }
        let expected = now.waiting + now.runnable + 1;
        match self {
            Policy::Off => Decision::Plain,
            Policy::Fixed(n) => Decision::Wait(n),
            Policy::Paper => match costs.of(kind) {
                Some(cost) if cost.put(costs.entry) < costs.entry => {
                    let most = (now.living as f64 * now.share) as usize;
                    let least = costs.entry / (costs.entry - cost.put(costs.entry));
                    if most as f64 > least {
                        Decision::Wait(most.min(LARGEST))
                    } else {
                        Decision::Plain
                    }
                }
                _ => Decision::Plain,
            },
            Policy::Adaptive => {
                let pays = self.gathers_from(kind, costs).is_some_and(|n| expected >= n);
                if expected > 1 && (pays || now.shared) {
                    Decision::Wait(LARGEST)
                } else {
                    Decision::Plain
                }
            }
        }
    }

    /// In words: what this policy never batches here, and why.
    pub fn explain(self, costs: &Costs) -> Vec<String> {
        let batchable = Kind::ALL.into_iter().filter(|kind| !kind.is_always_plain());
        let put = |kind| costs.of(kind).map(|cost| (cost, cost.put(costs.entry)));
        match self {
            Policy::Off => vec!["plain calls only".to_owned()],
            Policy::Fixed(n) => vec![format!("{n} calls start a batch")],
            Policy::Paper => batchable
                .map(|kind| match put(kind) {
                    Some((_, t)) if t < costs.entry => {
                        let least = costs.entry / (costs.entry - t);
                        format!(
                            "{}: from {:.0} on (D {:.0} ns, t {t:.0} ns)",
                            kind.name(),
                            least.floor() + 1.0,
                            costs.entry
                        )
                    }
                    Some((_, t)) => {
                        format!("{}: never, t {t:.0} ns >= D {:.0} ns", kind.name(), costs.entry)
                    }
                    None => format!("{}: never, each request is an entry of its own", kind.name()),
                })
                .collect(),
            Policy::Adaptive => batchable
                .map(|kind| match self.gathers_from(kind, costs) {
                    Some(n) if n <= LARGEST => format!("{}: from {n} on", kind.name()),
                    _ => format!("{}: only what can be merged", kind.name()),
                })
                .collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::Cost;
    use crate::op::KINDS;

    fn costs(plain: f64, entry: f64, each: f64) -> Costs {
        let mut kinds = [None; KINDS];
        kinds[Kind::Nop as usize] = Some(Cost { plain: 100.0, entry: 100.0, each: 40.0 });
        kinds[Kind::Recv as usize] = Some(Cost { plain, entry, each });
        Costs { entry: 100.0, kinds }
    }

    const ALONE: Situation =
        Situation { waiting: 0, runnable: 0, living: 100, shared: false, share: 0.5 };

    #[test]
    fn thin_traffic_waits_for_nobody() {
        let costs = costs(500.0, 100.0, 380.0);
        for shared in [false, true] {
            assert_eq!(
                Policy::Adaptive.decide(Kind::Recv, &costs, Situation { shared, ..ALONE }),
                Decision::Plain
            );
        }
        let some =
            |runnable| Policy::Adaptive.decide(Kind::Recv, &costs, Situation { runnable, ..ALONE });
        assert_eq!((some(1), some(2)), (Decision::Plain, Decision::Wait(LARGEST)));
    }

    #[test]
    fn four_equal_questions_are_enough() {
        let costs = costs(500.0, 100.0, 380.0);
        let near =
            |runnable| Policy::Adaptive.decide(Kind::Nop, &costs, Situation { runnable, ..ALONE });
        assert_eq!((near(2), near(3)), (Decision::Plain, Decision::Wait(LARGEST)));
    }

    #[test]
    fn what_can_be_merged_waits_where_a_batch_alone_would_not_pay() {
        let near = Situation { runnable: 1, shared: true, ..ALONE };
        assert_eq!(
            Policy::Adaptive.decide(Kind::Send, &Costs::none(), near),
            Decision::Wait(LARGEST)
        );
        assert_eq!(
            Policy::Adaptive.decide(
                Kind::Send,
                &Costs::none(),
                Situation { shared: false, ..near }
            ),
            Decision::Plain
        );
    }

    #[test]
    fn the_papers_threshold() {
        // t = 20 of D = 100: batching pays from 2 on (equation 5); 100 microprocesses, half of the
        // calls: 50 (equation 6).
        assert_eq!(
            Policy::Paper.decide(Kind::Recv, &costs(500.0, 100.0, 420.0), ALONE),
            Decision::Wait(50)
        );
        // Too few microprocesses for that.
        let few = Situation { living: 2, ..ALONE };
        assert_eq!(
            Policy::Paper.decide(Kind::Recv, &costs(500.0, 100.0, 420.0), few),
            Decision::Plain
        );
        // t >= D: never, and it says so.
        let dear = costs(500.0, 100.0, 510.0);
        assert_eq!(Policy::Paper.decide(Kind::Recv, &dear, ALONE), Decision::Plain);
        let said = Policy::Paper.explain(&dear);
        assert!(said.contains(&"recv: never, t 110 ns >= D 100 ns".to_owned()), "{said:?}");
    }

    #[test]
    fn what_is_always_plain_is_so_under_every_policy() {
        for policy in [Policy::Adaptive, Policy::Fixed(2), Policy::Paper, Policy::Off] {
            for kind in [Kind::Write, Kind::Sync, Kind::Stat] {
                let many = Situation { runnable: 60, shared: true, ..ALONE };
                assert_eq!(policy.decide(kind, &costs(500.0, 100.0, 1.0), many), Decision::Plain);
            }
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for policy in
            [Policy::Adaptive, Policy::Fixed(1), Policy::Fixed(64), Policy::Paper, Policy::Off]
        {
            assert_eq!(policy.to_string().parse(), Ok(policy));
            assert_eq!(Policy::of_word(policy.to_word()), policy);
        }
        for bad in ["", "fixed", "fixed=0", "fixed=65", "fixed=x", "on"] {
            let said = bad.parse::<Policy>().unwrap_err().to_string();
            assert!(said.contains(&format!("{bad:?}")) && said.contains("fixed=N"), "{said}");
        }
    }
}
