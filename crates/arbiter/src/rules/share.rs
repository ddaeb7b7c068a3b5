//! A bound on the CPU time of an address space: so much in each period (P0, section 3.4; as cpu.max
//! of control groups).
//!
//! What is used over the share in one period is owed in the next ones, so that in the long run no
//! more is used than the share; what would take longer than ten seconds (and one period) to work
//! off is forgiven. An address space that has used up its share runs below all levels until the
//! next period, so that it uses only what no other one wants; with a *hard* bound it does not run
//! at all.
//!
//! Pure functions on words; the time is CLOCK_MONOTONIC in nanoseconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kumihimo_config::ShownSpan;

/// Where a text says nothing else, as control groups have it.
const PERIOD: Duration = Duration::from_millis(100);

/// In so many microseconds any debt is worked off.
const LONGEST: u64 = 10_000_000;

/// How much CPU time an address space may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    per_mille: u32,
    period: u32,
    hard: bool,
}

impl Share {
    /// `per_mille` thousandths of *one core's* time in each period: 500 are half a core, 2,500 two
    /// and a half cores, over all virtual processors together. 1 to 1,024,000; the period 1 ms to
    /// 10 s, in whole microseconds. None if out of range.
    #[must_use]
    pub fn new(per_mille: u32, period: Duration, hard: bool) -> Option<Share> {
        let period = u32::try_from(period.as_micros()).ok()?;
        let fits = (1..=1_024_000).contains(&per_mille) && (1_000..=10_000_000).contains(&period);
        fits.then_some(Share { per_mille, period, hard })
    }

    /// Thousandths of one core.
    #[must_use]
    pub fn per_mille(self) -> u32 {
        self.per_mille
    }

    /// How long a period is.
    #[must_use]
    pub fn period(self) -> Duration {
        Duration::from_micros(u64::from(self.period))
    }

    /// Whether it does not run at all when its share is used up.
    #[must_use]
    pub fn is_hard(self) -> bool {
        self.hard
    }

    /// CPU time in one period, nanoseconds.
    fn quota(self) -> u64 {
        u64::from(self.per_mille) * u64::from(self.period)
    }

    /// In so many periods any debt is worked off.
    fn most_owed(self) -> u64 {
        (LONGEST / u64::from(self.period)).max(1)
    }

    fn nanoseconds(self) -> u64 {
        u64::from(self.period) * 1_000
    }

    pub(crate) fn packed(self) -> u64 {
        u64::from(self.per_mille) << 33 | u64::from(self.hard) << 32 | u64::from(self.period)
    }

    /// None where no share is set, or nonsense stands.
    pub(crate) fn unpacked(word: u64) -> Option<Share> {
        let period = Duration::from_micros(word & 0xffff_ffff);
        Share::new((word >> 33) as u32, period, word >> 32 & 1 != 0)
    }
}

/// A text that is no share.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareError(String);

impl fmt::Display for ShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is no share: per cent of one core, 0.1% to 102400%, and behind commas, where wanted, a period of 1ms to 10s (100ms if not said) and \
             hard: 50%,20ms,hard",
            self.0
        )
    }
}

impl std::error::Error for ShareError {}

/// `50%`: half a core, in each 100 ms; `250%,20ms,hard`.
impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Share, ShareError> {
        let asked = kumihimo_config::Share::parse(text);
        asked.map(Share::from).ok_or_else(|| ShareError(text.to_owned()))
    }
}

/// As `KUMI_SHARE` asks.
impl From<kumihimo_config::Share> for Share {
    fn from(asked: kumihimo_config::Share) -> Share {
        let period = asked.period.unwrap_or(PERIOD);
        Share::new(asked.per_mille, period, asked.hard).expect("the parser keeps to the ranges")
    }
}

/// As [`FromStr`] reads it.
impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.per_mille / 10)?;
        if !self.per_mille.is_multiple_of(10) {
            write!(f, ".{}", self.per_mille % 10)?;
        }
        write!(f, "%")?;
        if self.period() != PERIOD {
            write!(f, ",{}", ShownSpan(self.period()))?;
        }
        if self.hard { f.write_str(",hard") } else { Ok(()) }
    }
}

/// What was used: the period's number (20 bits), and how much in it with what is owed (44 bits,
/// nanoseconds: almost 5 hours).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account(pub(crate) u64);

const USED: u32 = 44;
const MOST: u64 = (1 << USED) - 1;
const PERIODS: u64 = (1 << (64 - USED)) - 1;

impl Account {
    fn number(share: Share, now: u64) -> u64 {
        (now / share.nanoseconds()) & PERIODS
    }

    /// What counts in the period of `now`.
    fn used(self, share: Share, now: u64) -> u64 {
        let passed = Account::number(share, now).wrapping_sub(self.0 >> USED) & PERIODS;
        // A clock that another kernel thread read a little earlier is no new period.
        let passed = if passed == PERIODS { 0 } else { passed };
        (self.0 & MOST).saturating_sub(passed.saturating_mul(share.quota()))
    }

    /// So much was used just now.
    pub(crate) fn booked(self, share: Share, now: u64, nanoseconds: u64) -> Account {
        let most = (share.quota() * (share.most_owed() + 1)).min(MOST);
        let used = self.used(share, now).saturating_add(nanoseconds).min(most);
        Account(Account::number(share, now) << USED | used)
    }

    pub(crate) fn is_spent(self, share: Share, now: u64) -> bool {
        self.used(share, now) >= share.quota()
    }

    /// In how many nanoseconds it is worth asking again: at the beginning of the next period.
    pub(crate) fn renewal(share: Share, now: u64) -> u64 {
        share.nanoseconds() - now % share.nanoseconds()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn out_of_range_is_refused() {
        let ms = Duration::from_millis;
        assert!(Share::new(0, ms(100), false).is_none());
        assert!(Share::new(1_024_001, ms(100), false).is_none());
        assert!(Share::new(500, Duration::from_micros(999), false).is_none());
        assert!(Share::new(500, ms(10_001), false).is_none());
        assert_eq!(Share::unpacked(0), None);
        assert_eq!(Share::unpacked(u64::MAX), None);
    }

    #[test]
    fn texts_that_are_shares_and_texts_that_are_none() {
        let ms = Duration::from_millis;
        for (text, per_mille, period, hard) in [
            ("50%", 500, ms(100), false),
            ("12.5%", 125, ms(100), false),
            ("250%,hard", 2_500, ms(100), true),
            ("0.1%,1ms", 1, ms(1), false),
            ("102400%,10s,hard", 1_024_000, ms(10_000), true),
        ] {
            let share = Share::new(per_mille, period, hard).unwrap();
            assert_eq!(text.parse(), Ok(share), "{text}");
            assert_eq!(share.to_string(), text);
        }
        for text in [
            "",
            "50",
            "%",
            "0%",
            "-5%",
            "+5%",
            "5.%",
            ".5%",
            "5.55%",
            "102400.1%",
            "99999999999%",
            "50%,",
            "50%,20",
            "50%,0ms",
            "50%,11s",
            "50%,soft",
            "50%,hard,20ms",
            "50%,hard,hard",
            "50%,20ms,30ms",
            " 50%",
        ] {
            let said = text.parse::<Share>().expect_err(text).to_string();
            assert!(
                said.contains(&format!("{text:?}")) && said.contains("50%,20ms,hard"),
                "{said}"
            );
        }
    }

    proptest! {
        #[test]
        fn what_is_shown_is_read(per_mille in 1u32..=1_024_000, period_us in 1_000u64..=10_000_000, hard: bool) {
            let share = Share::new(per_mille, Duration::from_micros(period_us), hard).unwrap();
            prop_assert_eq!(share.to_string().parse(), Ok(share));
        }

        /// A VP that runs whenever it may, by quanta, uses its share over many periods, and no more
        /// than that and one quantum.
        #[test]
        fn the_share_holds(per_mille in 1u32..2_000, period_ms in 1u64..200, quantum_us in 50u64..5_000, begins in 0u64..1 << 50) {
            let share = Share::new(per_mille, Duration::from_millis(period_ms), true).unwrap();
            prop_assert_eq!(Share::unpacked(share.packed()), Some(share));
            let quantum = quantum_us * 1_000;
            let (mut account, mut now, mut used) = (Account::default().booked(share, begins, 0), begins, 0u64);
            let end = begins + 200 * share.nanoseconds();
            while now < end {
                if account.is_spent(share, now) {
                    now += Account::renewal(share, now);
                    continue;
                }
                // Of two cores: what is booked is twice the time that passes, if the share is that
                // large.
                let cores = if per_mille > 1_000 { 2 } else { 1 };
                now += quantum;
                used += quantum * cores;
                account = account.booked(share, now, quantum * cores);
            }
            let allowed = 202 * share.quota() + 2 * quantum;
            prop_assert!(used <= allowed, "{} of {}", used, allowed);
            // A quantum that ends in the next period counts there, so a period may lack one, and
            // the next one owe it.
            let lacking = 2 * 2 * quantum;
            if lacking < share.quota() {
                prop_assert!(used >= 196 * (share.quota() - lacking), "{} of {}", used, 200 * share.quota());
            }
        }

        /// Nonsense in, no panic, and the debt ends.
        #[test]
        fn any_word_is_worked_off(word: u64, per_mille in 1u32..1_024_000, period_us in 1_000u64..10_000_000, now in 0u64..1 << 62, ns: u64) {
            let share = Share::new(per_mille, Duration::from_micros(period_us), false).unwrap();
            let account = Account(word).booked(share, now, ns);
            prop_assert!(!account.is_spent(share, now + (share.most_owed() + 2) * share.nanoseconds()));
        }
    }
}
