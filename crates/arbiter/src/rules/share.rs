//! Share: a bound on the CPU time of an address space in each period (P0, section 3.4). It
//! corresponds to cpu.max of control groups.
//!
//! CPU time above the share in one period is a debt that later periods work off, so the long-run
//! average does not exceed the share. Debt that would take longer than ten seconds (and one period)
//! to work off is forgiven. An address space that has used up its share ranks below all levels
//! until the next period, and so uses only idle CPU time. With a *hard* bound it does not run at
//! all.
//!
//! Pure functions on words; times are CLOCK_MONOTONIC in nanoseconds.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use kumihimo_config::ShownSpan;

/// Default period, the same as that of control groups.
const PERIOD: Duration = Duration::from_millis(100);

/// Time in microseconds within which any debt is worked off.
const LONGEST: u64 = 10_000_000;

/// CPU time that an address space may use.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::Share;
/// use std::time::Duration;
///
/// // Two and a half cores in each 20 ms, and not more.
/// let share: Share = "250%,20ms,hard".parse()?;
/// assert_eq!(Share::new(2_500, Duration::from_millis(20), true), Some(share));
/// assert_eq!(share.to_string(), "250%,20ms,hard");
/// # Ok::<(), kumihimo::runtime::ShareError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    per_mille: u32,
    period: u32,
    hard: bool,
}

impl Share {
    /// Creates a share of `per_mille` thousandths of *one core* in each period, summed over all
    /// VPs: 500 is half a core, 2,500 two and a half cores. `per_mille` must be 1 to 1,024,000, and
    /// the period 1 ms to 10 s in whole microseconds. Returns `None` if an argument is out of
    /// range.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Share;
    /// use std::time::Duration;
    ///
    /// let half = Share::new(500, Duration::from_millis(100), false).unwrap();
    /// assert_eq!(half.to_string(), "50%");
    /// assert!(Share::new(0, Duration::from_millis(100), false).is_none());
    /// ```
    #[must_use]
    pub fn new(per_mille: u32, period: Duration, hard: bool) -> Option<Share> {
        let period = u32::try_from(period.as_micros()).ok()?;
        let fits = (1..=1_024_000).contains(&per_mille) && (1_000..=10_000_000).contains(&period);
        fits.then_some(Share { per_mille, period, hard })
    }

    /// Returns the share in thousandths of one core.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Share;
    ///
    /// assert_eq!("12.5%".parse::<Share>()?.per_mille(), 125);
    /// # Ok::<(), kumihimo::runtime::ShareError>(())
    /// ```
    #[must_use]
    pub fn per_mille(self) -> u32 {
        self.per_mille
    }

    /// Returns the length of a period.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Share;
    /// use std::time::Duration;
    ///
    /// assert_eq!("50%".parse::<Share>()?.period(), Duration::from_millis(100), "the default");
    /// assert_eq!("50%,20ms".parse::<Share>()?.period(), Duration::from_millis(20));
    /// # Ok::<(), kumihimo::runtime::ShareError>(())
    /// ```
    #[must_use]
    pub fn period(self) -> Duration {
        Duration::from_micros(u64::from(self.period))
    }

    /// Returns whether the address space does not run at all once its share is used up.
    ///
    /// # Examples
    ///
    /// ```
    /// use kumihimo::runtime::Share;
    ///
    /// assert!(!"50%".parse::<Share>()?.is_hard());
    /// assert!("50%,hard".parse::<Share>()?.is_hard());
    /// # Ok::<(), kumihimo::runtime::ShareError>(())
    /// ```
    #[must_use]
    pub fn is_hard(self) -> bool {
        self.hard
    }

    /// Returns the CPU time per period in nanoseconds.
    fn quota(self) -> u64 {
        u64::from(self.per_mille) * u64::from(self.period)
    }

    /// Returns the number of periods within which any debt is worked off.
    fn most_owed(self) -> u64 {
        (LONGEST / u64::from(self.period)).max(1)
    }

    fn nanoseconds(self) -> u64 {
        u64::from(self.period) * 1_000
    }

    pub(crate) fn packed(self) -> u64 {
        u64::from(self.per_mille) << 33 | u64::from(self.hard) << 32 | u64::from(self.period)
    }

    /// Unpacks a share. `None` if no share is set or the word is invalid.
    pub(crate) fn unpacked(word: u64) -> Option<Share> {
        let period = Duration::from_micros(word & 0xffff_ffff);
        Share::new((word >> 33) as u32, period, word >> 32 & 1 != 0)
    }
}

/// Error of parsing a share.
///
/// # Examples
///
/// ```
/// use kumihimo::runtime::{Share, ShareError};
///
/// let error: ShareError = "half".parse::<Share>().unwrap_err();
/// assert!(error.to_string().starts_with("\"half\" is not a share"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShareError(String);

impl fmt::Display for ShareError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} is not a share: expected per cent of one core, 0.1% to 102400%, then optionally a period of 1ms to 10s (default 100ms) and \
             hard: 50%,20ms,hard",
            self.0
        )
    }
}

impl std::error::Error for ShareError {}

/// Parses texts like `50%` (half a core in each 100 ms) and `250%,20ms,hard`.
impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Share, ShareError> {
        let asked = kumihimo_config::Share::parse(text);
        asked.map(Share::from).ok_or_else(|| ShareError(text.to_owned()))
    }
}

/// Converts a parsed `KUMI_SHARE`.
impl From<kumihimo_config::Share> for Share {
    fn from(asked: kumihimo_config::Share) -> Share {
        let period = asked.period.unwrap_or(PERIOD);
        Share::new(asked.per_mille, period, asked.hard).expect("the parser keeps to the ranges")
    }
}

/// Formats the share as [`FromStr`] parses it.
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

/// Charged CPU time: the number of the period (20 bits), and the time charged in it including debt
/// (44 bits, nanoseconds: almost 5 hours).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account(pub(crate) u64);

const USED: u32 = 44;
const MOST: u64 = (1 << USED) - 1;
const PERIODS: u64 = (1 << (64 - USED)) - 1;

impl Account {
    fn number(share: Share, now: u64) -> u64 {
        (now / share.nanoseconds()) & PERIODS
    }

    /// Returns the CPU time charged to the period of `now`.
    fn used(self, share: Share, now: u64) -> u64 {
        let passed = Account::number(share, now).wrapping_sub(self.0 >> USED) & PERIODS;
        // A time that another kernel thread read slightly earlier does not start a new period.
        let passed = if passed == PERIODS { 0 } else { passed };
        (self.0 & MOST).saturating_sub(passed.saturating_mul(share.quota()))
    }

    /// Returns the account after charging `nanoseconds` at `now`.
    pub(crate) fn booked(self, share: Share, now: u64, nanoseconds: u64) -> Account {
        let most = (share.quota() * (share.most_owed() + 1)).min(MOST);
        let used = self.used(share, now).saturating_add(nanoseconds).min(most);
        Account(Account::number(share, now) << USED | used)
    }

    pub(crate) fn is_spent(self, share: Share, now: u64) -> bool {
        self.used(share, now) >= share.quota()
    }

    /// Returns the time until the next period in nanoseconds, before which another check is
    /// useless.
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
    fn share_parses_only_valid_texts() {
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
        fn displayed_share_parses_back(per_mille in 1u32..=1_024_000, period_us in 1_000u64..=10_000_000, hard: bool) {
            let share = Share::new(per_mille, Duration::from_micros(period_us), hard).unwrap();
            prop_assert_eq!(share.to_string().parse(), Ok(share));
        }

        /// A VP that runs whenever it may, in whole quanta, uses its share over many periods, and
        /// at most one quantum more.
        #[test]
        fn long_run_use_matches_share(per_mille in 1u32..2_000, period_ms in 1u64..200, quantum_us in 50u64..5_000, begins in 0u64..1 << 50) {
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
                // Simulates two cores if the share exceeds one core: twice the elapsed time is
                // charged.
                let cores = if per_mille > 1_000 { 2 } else { 1 };
                now += quantum;
                used += quantum * cores;
                account = account.booked(share, now, quantum * cores);
            }
            let allowed = 202 * share.quota() + 2 * quantum;
            prop_assert!(used <= allowed, "{} of {}", used, allowed);
            // A quantum that ends in the next period is charged there, so a period may lack a
            // quantum and the next period owe it.
            let lacking = 2 * 2 * quantum;
            if lacking < share.quota() {
                prop_assert!(used >= 196 * (share.quota() - lacking), "{} of {}", used, 200 * share.quota());
            }
        }

        /// Any word is accepted without a panic, and its debt ends.
        #[test]
        fn debt_of_any_word_ends(word: u64, per_mille in 1u32..1_024_000, period_us in 1_000u64..10_000_000, now in 0u64..1 << 62, ns: u64) {
            let share = Share::new(per_mille, Duration::from_micros(period_us), false).unwrap();
            let account = Account(word).booked(share, now, ns);
            prop_assert!(!account.is_spent(share, now + (share.most_owed() + 2) * share.nanoseconds()));
        }
    }
}
