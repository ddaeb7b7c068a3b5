//! What the clock can be asked.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A question to the clock; each has a file of its own in the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading {
    /// Nanoseconds since 1970: `CLOCK_REALTIME`.
    Now,
    /// Nanoseconds since some moment in the past, which no one sets back: `CLOCK_MONOTONIC`.
    Monotonic,
    /// Nanoseconds since the machine began, its sleep included: `CLOCK_BOOTTIME`.
    Uptime,
}

impl Reading {
    /// All of them.
    pub const ALL: [Reading; 3] = [Reading::Now, Reading::Monotonic, Reading::Uptime];

    /// Its file's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reading::Now => "now",
            Reading::Monotonic => "monotonic",
            Reading::Uptime => "uptime",
        }
    }

    /// Reads the clock. clock_gettime(2).
    #[must_use]
    pub fn nanoseconds(self) -> i64 {
        let clock = match self {
            Reading::Now => ClockId::Realtime,
            Reading::Monotonic => ClockId::Monotonic,
            Reading::Uptime => ClockId::Boottime,
        };
        let time = clock_gettime(clock);
        time.tv_sec.saturating_mul(1_000_000_000).saturating_add(time.tv_nsec)
    }
}
