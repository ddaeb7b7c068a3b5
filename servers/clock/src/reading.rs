//! The values that the clock provides.

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// A value of the clock. Each is a file of the mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Reading {
    /// Nanoseconds since 1970: `CLOCK_REALTIME`.
    Now,
    /// Nanoseconds since an unspecified point in the past, unaffected by changes of the time:
    /// `CLOCK_MONOTONIC`.
    Monotonic,
    /// Nanoseconds since boot, including suspend: `CLOCK_BOOTTIME`.
    Uptime,
}

impl Reading {
    /// All readings.
    pub const ALL: [Reading; 3] = [Reading::Now, Reading::Monotonic, Reading::Uptime];

    /// Name of the file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Reading::Now => "now",
            Reading::Monotonic => "monotonic",
            Reading::Uptime => "uptime",
        }
    }

    /// Reads the clock with clock_gettime(2).
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
