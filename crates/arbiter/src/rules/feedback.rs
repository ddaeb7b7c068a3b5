//! Machine-wide multi-level feedback. An address space whose VPs keep using up their quanta sinks
//! below other address spaces of its level; an address space that waits rises again. The rule is a
//! setting of the board and the same for all members. Each address space applies it to itself when
//! it charges CPU time.
//!
//! Pure functions on words.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kumihimo_config::{ShownSpan, span};

/// Rule by which address spaces sink and rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    quantum: u32,
    quanta: u8,
    depth: u8,
}

impl Rule {
    /// Creates a rule: after `quanta` quanta of CPU time without waiting, an address space sinks
    /// one level, and at most `depth` levels in total. A quantum must be 10 us to 10 s, `quanta` 1
    /// to 255, and `depth` 1 to 63. Returns `None` if an argument is out of range.
    #[must_use]
    pub fn new(quantum: Duration, quanta: u8, depth: u8) -> Option<Rule> {
        let quantum = u32::try_from(quantum.as_micros()).ok()?;
        let fits = (10..=10_000_000).contains(&quantum) && quanta > 0 && (1..=63).contains(&depth);
        fits.then_some(Rule { quantum, quanta, depth })
    }

    /// Returns the CPU time in nanoseconds after which an address space sinks one level.
    fn budget(self) -> u64 {
        u64::from(self.quantum) * 1_000 * u64::from(self.quanta)
    }

    pub(crate) fn packed(self) -> u64 {
        u64::from(self.depth) << 40 | u64::from(self.quanta) << 32 | u64::from(self.quantum)
    }

    /// Unpacks a rule. `None` if feedback is off or the word is invalid.
    pub(crate) fn unpacked(word: u64) -> Option<Rule> {
        let quantum = Duration::from_micros(word & 0xffff_ffff);
        (word >> 48 == 0)
            .then(|| Rule::new(quantum, (word >> 32) as u8, (word >> 40) as u8))
            .flatten()
    }
}

/// One level after each 40 ms, at most eight levels.
impl Default for Rule {
    fn default() -> Rule {
        Rule { quantum: 40_000, quanta: 1, depth: 8 }
    }
}

/// Error of parsing a feedback rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError(String);

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a feedback rule: expected on ({}), or TIME,LEVELS: the CPU time without waiting after which an address space sinks one level \
             (10us to 10s), and the maximum number of levels (1 to 63)",
            self.0,
            Rule::default()
        )
    }
}

impl std::error::Error for RuleError {}

/// Parses `on`, or a text like `40ms,8`: one level lower after each 40 ms of CPU time without
/// waiting, at most eight levels.
impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Rule, RuleError> {
        if text == "on" {
            return Ok(Rule::default());
        }
        let read = || {
            let (time, levels) = text.split_once(',')?;
            let levels = levels.parse().ok().filter(|_| !levels.starts_with('+'))?;
            Rule::new(span(time)?, 1, levels)
        };
        read().ok_or_else(|| RuleError(text.to_owned()))
    }
}

/// Formats the rule as [`FromStr`] parses it, with the time of all quanta together.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", ShownSpan(Duration::from_nanos(self.budget())), self.depth)
    }
}

/// Feedback depth of an address space: the levels that it has sunk (8 bits), and a CPU time (56
/// bits, nanoseconds). The time counts since it last sank, rose or waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depth(pub(crate) u64);

const USED: u32 = 56;
const MOST: u64 = (1 << USED) - 1;

impl Depth {
    fn of(levels: u64, used: u64) -> Depth {
        Depth(levels << USED | used.min(MOST))
    }

    pub(crate) fn levels(self) -> u8 {
        (self.0 >> USED) as u8
    }

    /// Returns the depth after the use of CPU time. Sinks one level at most, regardless of the
    /// time.
    pub(crate) fn ran(self, rule: Rule, nanoseconds: u64) -> Depth {
        let levels = u64::from(self.levels().min(rule.depth));
        let used = (self.0 & MOST).saturating_add(nanoseconds);
        if used < rule.budget() {
            Depth::of(levels, used)
        } else {
            Depth::of((levels + 1).min(rule.depth.into()), 0)
        }
    }

    /// Returns the depth after a wait that began before the budget was used up. Rises one level if
    /// less than half of the budget was used. Thus a brief wait between long computations gains
    /// nothing.
    pub(crate) fn waited(self, rule: Rule) -> Depth {
        let levels = u64::from(self.levels().min(rule.depth));
        if (self.0 & MOST) < rule.budget() / 2 {
            Depth::of(levels.saturating_sub(1), 0)
        } else {
            Depth::of(levels, self.0 & MOST)
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn rules() -> impl Strategy<Value = Rule> {
        (10u64..1_000_000, 1u8.., 1u8..64).prop_map(|(quantum, quanta, depth)| {
            Rule::new(Duration::from_micros(quantum), quanta, depth).unwrap()
        })
    }

    #[test]
    fn out_of_range_is_refused() {
        let ms = Duration::from_millis;
        assert!(Rule::new(ms(0), 1, 1).is_none());
        assert!(Rule::new(ms(10_001), 1, 1).is_none());
        assert!(Rule::new(ms(10), 0, 1).is_none());
        assert!(Rule::new(ms(10), 1, 0).is_none());
        assert!(Rule::new(ms(10), 1, 64).is_none());
        assert_eq!(Rule::unpacked(0), None);
        assert_eq!(Rule::unpacked(u64::MAX), None);
    }

    #[test]
    fn rule_parses_only_valid_texts() {
        assert_eq!("on".parse(), Ok(Rule::default()));
        assert_eq!(Rule::default().to_string(), "40ms,8");
        assert_eq!("40ms,8".parse(), Ok(Rule::default()));
        let rule = Rule::new(Duration::from_micros(500), 3, 63).unwrap();
        assert_eq!(rule.to_string(), "1500us,63");
        for text in [
            "", "off", "40ms", "40,8", "40ms,0", "40ms,64", "9us,8", "11s,8", "40ms,+8",
            "40ms,8,8", " 40ms,8",
        ] {
            let said = text.parse::<Rule>().expect_err(text).to_string();
            assert!(said.contains(&format!("{text:?}")) && said.contains("TIME,LEVELS"), "{said}");
        }
    }

    proptest! {
        /// On a simulated clock, one address space computes without end, the other in bursts of a
        /// tenth of the budget.
        #[test]
        fn computing_sinks_and_waiting_raises(rule in rules(), steps in 1u64..2_000) {
            prop_assert_eq!(Rule::unpacked(rule.packed()), Some(rule));
            let (mut computes, mut waits) = (Depth::default(), Depth::default());
            for _ in 0..steps {
                computes = computes.ran(rule, rule.budget() / 10 + 1);
                waits = waits.ran(rule, rule.budget() / 10 + 1).waited(rule);
                prop_assert_eq!(waits.levels(), 0);
                prop_assert!(computes.levels() <= rule.depth);
            }
            prop_assert!(u64::from(computes.levels()) + 1 >= (steps / 10).min(rule.depth.into()));
            // Once it waits more than it computes, it rises again, one level per wait.
            let deep = computes.levels();
            let mut risen = computes.ran(rule, rule.budget());
            for _ in 0..=deep {
                risen = risen.waited(rule);
            }
            prop_assert_eq!(risen.levels(), 0);
        }

        /// For any word and time the depth stays within the rule, and changes by one level at most.
        #[test]
        fn depth_stays_within_the_rule(word: u64, rule in rules(), ns: u64) {
            let before = Depth(word).levels().min(rule.depth);
            for after in [Depth(word).ran(rule, ns), Depth(word).waited(rule)] {
                prop_assert!(after.levels() <= rule.depth);
                prop_assert!(after.levels().abs_diff(before) <= 1);
            }
        }
    }
}
