//! Spans of time in settings: `20ms`, `500us`, `2s`.

use std::fmt;
use std::time::Duration;

/// Parses a whole number with a unit: `us`, `ms` or `s`.
#[must_use]
pub fn span(text: &str) -> Option<Duration> {
    let unit = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(unit);
    let number: u64 = number.parse().ok()?;
    match unit {
        "us" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

/// Displays a span of whole microseconds as [`span`] parses it, in the largest exact unit.
#[derive(Clone, Copy, Debug)]
pub struct ShownSpan(pub Duration);

impl fmt::Display for ShownSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_micros() {
            us if us.is_multiple_of(1_000_000) => write!(f, "{}s", us / 1_000_000),
            us if us.is_multiple_of(1_000) => write!(f, "{}ms", us / 1_000),
            us => write!(f, "{us}us"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn displayed_span_parses_back() {
        for (text, us) in [
            ("0s", 0),
            ("1us", 1),
            ("999us", 999),
            ("1ms", 1_000),
            ("1500us", 1_500),
            ("10s", 10_000_000),
        ] {
            assert_eq!(span(text), Some(Duration::from_micros(us)));
            assert_eq!(ShownSpan(Duration::from_micros(us)).to_string(), text);
        }
        for text in ["", "5", "ms", "-1ms", "1 ms", "1m", "1ns", "1.5ms", "99999999999999999999s"] {
            assert_eq!(span(text), None, "{text}");
        }
    }
}
