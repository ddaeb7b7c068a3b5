//! Machine-wide multi-level feedback: an address space whose virtual processors keep using up their
//! quanta sinks below others of its level; one that waits for something rises again. A setting of
//! the board, the same for all; each address space applies it to itself, where it books its CPU
//! time.
//!
//! Pure functions on words.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kumihimo_config::{ShownSpan, span};

/// When address spaces sink and rise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    quantum: u32,
    quanta: u8,
    depth: u8,
}

impl Rule {
    /// After `quanta` (1 to 255) quanta of CPU time (10 us to 10 s each) without waiting an address
    /// space sinks a level, at most `depth` (1 to 63) of them. None if out of range.
    #[must_use]
    pub fn new(quantum: Duration, quanta: u8, depth: u8) -> Option<Rule> {
        let quantum = u32::try_from(quantum.as_micros()).ok()?;
        let fits = (10..=10_000_000).contains(&quantum) && quanta > 0 && (1..=63).contains(&depth);
        fits.then_some(Rule { quantum, quanta, depth })
    }

    /// CPU time, nanoseconds, in which one sinks by a level.
    fn budget(self) -> u64 {
        u64::from(self.quantum) * 1_000 * u64::from(self.quanta)
    }

    pub(crate) fn packed(self) -> u64 {
        u64::from(self.depth) << 40 | u64::from(self.quanta) << 32 | u64::from(self.quantum)
    }

    /// None where the feedback is off, or nonsense stands.
    pub(crate) fn unpacked(word: u64) -> Option<Rule> {
        let quantum = Duration::from_micros(word & 0xffff_ffff);
        (word >> 48 == 0)
            .then(|| Rule::new(quantum, (word >> 32) as u8, (word >> 40) as u8))
            .flatten()
    }
}

/// A level lower after each 40 ms, eight levels at most.
impl Default for Rule {
    fn default() -> Rule {
        Rule { quantum: 40_000, quanta: 1, depth: 8 }
    }
}

/// A text that is no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleError(String);

impl fmt::Display for RuleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no rule of feedback: on ({}), or TIME,LEVELS: after so much CPU time without waiting (10us to 10s) a level lower, so many (1 to \
             63) at most",
            self.0,
            Rule::default()
        )
    }
}

impl std::error::Error for RuleError {}

/// `on`, or `40ms,8`: after 40 ms of CPU time without waiting a level lower, eight at most.
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

/// As [`FromStr`] reads it: the time of all quanta together.
impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{}", ShownSpan(Duration::from_nanos(self.budget())), self.depth)
    }
}

/// By how many levels an address space has sunk (8 bits), and its CPU time since it last sank, rose
/// or waited (56 bits, nanoseconds).
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

    /// It used so much CPU time. Sinks by one level at most, however much that is.
    pub(crate) fn ran(self, rule: Rule, nanoseconds: u64) -> Depth {
        let levels = u64::from(self.levels().min(rule.depth));
        let used = (self.0 & MOST).saturating_add(nanoseconds);
        if used < rule.budget() {
            Depth::of(levels, used)
        } else {
            Depth::of((levels + 1).min(rule.depth.into()), 0)
        }
    }

    /// It waited for something before its budget was used up. With less than half of it used it
    /// rises by a level; so now and then to wait for a moment, between long computations, gains
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
    fn texts_that_are_rules_and_texts_that_are_none() {
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
        /// A simulated clock: one computes without end, one in bursts of a tenth of its budget.
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
            // As soon as it waits more than it computes, it comes up again, a level a time.
            let deep = computes.levels();
            let mut risen = computes.ran(rule, rule.budget());
            for _ in 0..=deep {
                risen = risen.waited(rule);
            }
            prop_assert_eq!(risen.levels(), 0);
        }

        /// Any word, any time: never deeper than the rule says, never more than a level at once.
        #[test]
        fn never_deeper_than_the_rule(word: u64, rule in rules(), ns: u64) {
            let before = Depth(word).levels().min(rule.depth);
            for after in [Depth(word).ran(rule, ns), Depth(word).waited(rule)] {
                prop_assert!(after.levels() <= rule.depth);
                prop_assert!(after.levels().abs_diff(before) <= 1);
            }
        }
    }
}
