//! Requests to the border of this machine, and its answers.

use serde::{Deserialize, Serialize};

use super::name::Epoch;
use crate::handler::Refused;
use crate::protocol::{PROTOCOL, put};

/// The border's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// [`PROTOCOL`] of the border.
    pub protocol: u32,
    /// Version of the border.
    #[serde(default)]
    pub version: String,
    /// Name of this machine.
    pub border: String,
}

/// A request to the border.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "border", rename_all = "lowercase")]
pub enum Ask {
    /// Lists this machine and its peers.
    Machines,
    /// Lists the address spaces of a peer.
    Spaces {
        /// Name of the peer.
        machine: String,
        /// Epoch of the peer that the client means.
        epoch: Epoch,
    },
    /// Connects to the control socket of an address space of a peer.
    Control {
        /// Name of the peer.
        machine: String,
        /// Epoch of the peer that the client means.
        epoch: Epoch,
        /// Number of the address space.
        space: u16,
    },
}

#[derive(Serialize)]
struct Envelope<'a> {
    protocol: u32,
    #[serde(flatten)]
    ask: &'a Ask,
}

#[derive(Deserialize)]
struct Version {
    protocol: u32,
}

impl Ask {
    /// Returns the request as a line.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut line = Vec::new();
        put(&mut line, &Envelope { protocol: PROTOCOL, ask: self });
        line
    }

    /// Parses a request from a line.
    ///
    /// # Errors
    /// Returns `Unsupported` if the line uses another protocol, and `Invalid` if it is not a
    /// request.
    pub fn parse(line: &[u8]) -> Result<Ask, Refused> {
        let invalid = |e: serde_json::Error| Refused::Invalid(format!("invalid request: {e}"));
        let Version { protocol } = serde_json::from_slice(line).map_err(invalid)?;
        if protocol != PROTOCOL {
            return Err(Refused::Unsupported(format!(
                "the request uses protocol {protocol}, but this border (Kumihimo {}) uses protocol {PROTOCOL}: use a kumi of the same version",
                env!("CARGO_PKG_VERSION")
            )));
        }
        serde_json::from_slice(line).map_err(invalid)
    }
}

/// An item of the list of a machine's address spaces.
#[derive(Debug, Serialize, Deserialize)]
pub struct SpaceNumber {
    /// The number.
    pub space: u16,
}

/// Whether the border reaches a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineState {
    /// This machine.
    Own,
    /// Connected.
    Reachable,
    /// Not connected, since [`MachineRow::since`].
    Unreachable,
}

/// A machine, as the border describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineRow {
    /// Name of the machine.
    pub name: String,
    /// Whether the border reaches it.
    pub state: MachineState,
    /// Where its border listens: `HOST:PORT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Fingerprint of its border's public key: 32 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Epoch of its run-time directory, the last one known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// Version of its border.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Time since which it has the state, in seconds since 1970.
    pub since: u64,
    /// Seconds since then, by a clock that is not set.
    pub seconds: u64,
    /// Why it is not reachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

impl MachineRow {
    /// Returns the sentence about a machine that is not reachable.
    #[must_use]
    pub fn unreachable(&self) -> String {
        let why = self.why.as_deref().unwrap_or("no reason is known");
        let place = self.place.as_deref().map_or_else(String::new, |place| format!(" ({place})"));
        format!(
            "machine {}{place} is unreachable since {}, for {} s: {why}",
            self.name,
            utc(self.since),
            self.seconds
        )
    }
}

/// Formats a time as `2026-11-29 17:55:03 UTC`.
#[must_use]
pub fn utc(seconds: u64) -> String {
    let (days, time) = (seconds / 86_400, seconds % 86_400);
    // Years begin in March, so that the leap day is the last one: 146,097 days in 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02} UTC")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_survive_a_round_trip() {
        let (machine, epoch) = ("build7".to_owned(), Epoch(u64::MAX));
        for ask in [
            Ask::Machines,
            Ask::Spaces { machine: machine.clone(), epoch },
            Ask::Control { machine, epoch, space: 12 },
        ] {
            assert_eq!(Ask::parse(&ask.line()), Ok(ask));
        }
    }

    #[test]
    fn other_lines_are_refused() {
        for (line, says) in [
            (&b"{\"protocol\":1,\"border\":\"dance\"}"[..], "dance"),
            (b"{\"protocol\":1,\"ask\":\"space\"}", "border"),
            (
                b"{\"protocol\":1,\"border\":\"spaces\",\"machine\":\"a\",\"epoch\":\"x\"}",
                "no epoch",
            ),
            (b"{\"border\":\"machines\"}", "protocol"),
            (b"[]", ""),
            (b"\xff", ""),
        ] {
            match Ask::parse(line) {
                Err(Refused::Invalid(text)) => assert!(text.contains(says), "{text}"),
                other => panic!("{other:?}"),
            }
        }
        let other = Ask::parse(b"{\"protocol\":2,\"border\":\"machines\"}");
        assert!(matches!(other, Err(Refused::Unsupported(_))), "{other:?}");
    }

    #[test]
    fn times_are_formatted_as_utc() {
        for (seconds, text) in [
            (0, "1970-01-01 00:00:00 UTC"),
            (951_782_400, "2000-02-29 00:00:00 UTC"),
            (1_796_000_000, "2026-11-30 00:53:20 UTC"),
            (4_102_444_799, "2099-12-31 23:59:59 UTC"),
        ] {
            assert_eq!(utc(seconds), text);
        }
    }
}
