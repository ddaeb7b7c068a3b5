//! Results of a load as one line.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use kumihimo_bench_kit::Lateness;
use nix::sys::resource::{UsageWho, getrusage};

/// Numbers by name; as a line, `name=number` separated by blanks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome(BTreeMap<String, f64>);

impl Outcome {
    /// Adds a number.
    #[must_use]
    pub fn with(mut self, name: &str, value: f64) -> Outcome {
        self.0.insert(name.to_owned(), value);
        self
    }

    /// Adds the rate and the percentiles of `late`, whose operations took `seconds` together.
    #[must_use]
    pub fn rate(self, late: &Lateness, seconds: f64) -> Outcome {
        self.with("ops", late.len() as f64)
            .with("rate", late.len() as f64 / seconds)
            .with("p50", late.us(0.5))
            .with("p99", late.us(0.99))
            .with("max", late.us(1.0))
    }

    /// The number with this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn get(&self, name: &str) -> Result<f64, String> {
        self.0.get(name).copied().ok_or_else(|| format!("the load did not report {name}"))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words: Vec<String> =
            self.0.iter().map(|(name, value)| format!("{name}={value}")).collect();
        f.write_str(&words.join(" "))
    }
}

impl FromStr for Outcome {
    type Err = String;

    fn from_str(line: &str) -> Result<Outcome, String> {
        let number = |word: &str| {
            let (name, value) = word.split_once('=')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        let all: Option<BTreeMap<_, _>> = line.split_whitespace().map(number).collect();
        all.filter(|all| !all.is_empty())
            .map(Outcome)
            .ok_or_else(|| format!("cannot parse the load's reply {line:?}"))
    }
}

/// Measures elapsed time, and this process's CPU time by getrusage(2), from its creation on.
pub struct Spent {
    begun: Instant,
    user: Duration,
    system: Duration,
}

impl Spent {
    /// Starts the measurement.
    ///
    /// # Errors
    /// Of getrusage(2).
    pub fn begin() -> Result<Spent, String> {
        let (user, system) = used(UsageWho::RUSAGE_SELF)?;
        Ok(Spent { begun: Instant::now(), user, system })
    }

    /// `ms`, `user_ms`, `system_ms` since the start.
    ///
    /// # Errors
    /// Of getrusage(2).
    pub fn end(&self) -> Result<Outcome, String> {
        let took = self.begun.elapsed();
        let (user, system) = used(UsageWho::RUSAGE_SELF)?;
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        let since = |now: Duration, before: Duration| ms(now.saturating_sub(before));
        Ok(Outcome::default()
            .with("ms", ms(took))
            .with("user_ms", since(user, self.user))
            .with("system_ms", since(system, self.system)))
    }
}

/// User and system CPU time.
fn used(who: UsageWho) -> Result<(Duration, Duration), String> {
    let usage = getrusage(who).map_err(|e| format!("getrusage: {e}"))?;
    let time =
        |t: nix::sys::time::TimeVal| Duration::new(t.tv_sec() as u64, t.tv_usec() as u32 * 1_000);
    Ok((time(usage.user_time()), time(usage.system_time())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_is_parsed_from_its_text() {
        let said = Outcome::default().with("ms", 1.5).with("user_ms", 0.25);
        assert_eq!(said.to_string().parse::<Outcome>().unwrap(), said);
        assert_eq!(said.get("ms").unwrap(), 1.5);
        assert!(said.get("rate").unwrap_err().contains("rate"));
        for line in ["", "ms", "ms=x", "open: no such file"] {
            assert!(line.parse::<Outcome>().is_err(), "{line}");
        }
    }
}
