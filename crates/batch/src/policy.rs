//! Policies: whether a call is made at once or waits for a batch.

use crate::call::LARGEST;
use crate::costs::Costs;
use crate::op::Kind;

/// Decides which calls are batched, and how many calls start a batch. A batch also starts when
/// nothing else is runnable, and at a deadline.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{BatchPolicy, Runtime, metrics};
///
/// // The text is the one that `KUMI_LAB=batch=...` accepts.
/// let policy: BatchPolicy = "fixed=16".parse().unwrap();
/// assert_eq!(policy, BatchPolicy::Fixed(16));
/// let runtime = Runtime::builder().batch(policy).build()?;
/// assert_eq!(runtime.run(|| metrics().unwrap().batch.policy), "fixed=16");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// Batches calls where that pays. That is the case if so many other microprocesses are runnable
    /// that, by the measured costs, their batch would be cheaper than plain calls. It is also the
    /// case if others use the same object, so that calls can be merged. Otherwise calls are plain:
    /// in thin traffic no call waits.
    #[default]
    Adaptive,
    /// Batches every call that may be batched. This many calls start a batch.
    Fixed(usize),
    /// The paper's threshold: the number of microprocesses times the share of their calls that may
    /// be batched (equation 6), if that exceeds D/(D-t) (equation 5). A kind with t >= D is never
    /// batched.
    Paper,
    /// Makes plain calls only.
    Off,
}

/// The error for a text that names no policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadPolicy(String);

impl std::fmt::Display for BadPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "batch policy {:?}: expected adaptive, paper, off or fixed=N with N from 1 to {LARGEST}",
            self.0
        )
    }
}

impl std::error::Error for BadPolicy {}

/// Parses the format of [`Display`](std::fmt::Display), or of `KUMI_LAB=batch=...` (`fixed:3`).
impl std::str::FromStr for Policy {
    type Err = BadPolicy;

    fn from_str(text: &str) -> Result<Policy, BadPolicy> {
        let asked = kumihimo_config::Batch::parse(&text.replacen('=', ":", 1));
        asked.map(Policy::from).ok_or_else(|| BadPolicy(text.to_owned()))
    }
}

/// Converts the value of `KUMI_LAB=batch=...`.
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

/// The situation in which a policy decides.
#[derive(Clone, Copy, Debug)]
pub struct Situation {
    /// The number of calls that already wait for the batch.
    pub waiting: usize,
    /// The number of microprocesses that may make a call before the waiting ones continue: runnable
    /// on this VP, with the caller's priority or above.
    pub runnable: usize,
    /// The number of living microprocesses, for each virtual processor.
    pub living: usize,
    /// Whether others use the object of the call too.
    pub shared: bool,
    /// The share of all calls that may be batched, 0 to 1.
    pub share: f64,
}

/// The decision about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The call is made alone, at once.
    Plain,
    /// The call waits until this many calls wait, itself included.
    Wait(usize),
}

const FIXED: u32 = 16;

/// The nanoseconds that a batched call costs its microprocess in addition: to leave the VP, and to
/// be made runnable again. Measured by `kumi bench syscall-batch`.
const LEAVING: f64 = 80.0;

/// The number of equal nops that are worth a batch. Measured by `kumi bench syscall-batch`, and
/// `transaction` for the effect of waiting in thin traffic.
const NOPS: usize = 4;

impl Policy {
    /// Encodes the policy as a number, for one atomic word.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::BatchPolicy;
    ///
    /// let (adaptive, fixed) = (BatchPolicy::Adaptive.to_word(), BatchPolicy::Fixed(8).to_word());
    /// assert_ne!(adaptive, fixed);
    /// ```
    pub const fn to_word(self) -> u32 {
        match self {
            Policy::Adaptive => 0,
            Policy::Paper => 1,
            Policy::Off => 2,
            Policy::Fixed(n) => FIXED + n as u32,
        }
    }

    /// Decodes the result of [`to_word`](Policy::to_word).
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::BatchPolicy;
    ///
    /// let word = BatchPolicy::Fixed(8).to_word();
    /// assert_eq!(BatchPolicy::of_word(word), BatchPolicy::Fixed(8));
    /// ```
    pub const fn of_word(word: u32) -> Policy {
        match word {
            0 => Policy::Adaptive,
            1 => Policy::Paper,
            n if n > FIXED => Policy::Fixed((n - FIXED) as usize),
            _ => Policy::Off,
        }
    }

    /// Returns the number of calls from which [`Adaptive`](Policy::Adaptive) batches calls of
    /// `kind` that share no object. Returns `None` if it never does.
    pub fn gathers_from(self, kind: Kind, costs: &Costs) -> Option<usize> {
        match (self, kind) {
            (Policy::Adaptive, _) if kind.is_always_plain() => None,
            // Equal nops share one result, which costs less than the measured costs imply. But
            // their waiters wait.
            (Policy::Adaptive, Kind::Nop) => costs.of(kind).map(|_| NOPS),
            (Policy::Adaptive, _) => costs.of(kind).and_then(|cost| cost.pays_from(LEAVING)),
            _ => None,
        }
    }

    /// Decides about a call of `kind`.
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

    /// Describes which calls this policy batches here and which it never batches, with the reason.
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
    fn call_in_thin_traffic_is_made_at_once() {
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
    fn four_nops_are_worth_a_batch() {
        let costs = costs(500.0, 100.0, 380.0);
        let near =
            |runnable| Policy::Adaptive.decide(Kind::Nop, &costs, Situation { runnable, ..ALONE });
        assert_eq!((near(2), near(3)), (Decision::Plain, Decision::Wait(LARGEST)));
    }

    #[test]
    fn mergeable_call_waits_although_a_batch_would_not_pay() {
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
    fn paper_policy_uses_the_thresholds_of_equations_5_and_6() {
        // t = 20 and D = 100: batching pays from 2 calls on (equation 5). With 100
        // microprocesses, half of whose calls may be batched, batches of 50 (equation 6).
        assert_eq!(
            Policy::Paper.decide(Kind::Recv, &costs(500.0, 100.0, 420.0), ALONE),
            Decision::Wait(50)
        );
        // There are too few microprocesses for a batch.
        let few = Situation { living: 2, ..ALONE };
        assert_eq!(
            Policy::Paper.decide(Kind::Recv, &costs(500.0, 100.0, 420.0), few),
            Decision::Plain
        );
        // t >= D: such calls are never batched, and the explanation contains that.
        let dear = costs(500.0, 100.0, 510.0);
        assert_eq!(Policy::Paper.decide(Kind::Recv, &dear, ALONE), Decision::Plain);
        let said = Policy::Paper.explain(&dear);
        assert!(said.contains(&"recv: never, t 110 ns >= D 100 ns".to_owned()), "{said:?}");
    }

    #[test]
    fn always_plain_calls_are_plain_under_every_policy() {
        for policy in [Policy::Adaptive, Policy::Fixed(2), Policy::Paper, Policy::Off] {
            for kind in [Kind::Write, Kind::Sync, Kind::Stat] {
                let many = Situation { runnable: 60, shared: true, ..ALONE };
                assert_eq!(policy.decide(kind, &costs(500.0, 100.0, 1.0), many), Decision::Plain);
            }
        }
    }

    #[test]
    fn displayed_policies_are_parsed_back() {
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
