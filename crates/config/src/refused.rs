//! Variables of earlier versions, which are refused.

use std::ffi::OsStr;

use crate::error::{Problem, Why};

/// A variable of an earlier version.
pub(crate) struct Refused {
    pub(crate) name: &'static str,
    /// The assignment that replaces the variable with this value. `None`: no variable does.
    successor: fn(&str) -> Option<String>,
}

/// What a key of `KUMI_LAB` replaced.
macro_rules! now_in_lab {
    ($name:literal, $key:literal) => {
        Refused {
            name: $name,
            // A value of the laboratory holds no `=`.
            successor: |value| {
                Some(format!(concat!("KUMI_LAB=", $key, "={}"), value.replace('=', ":")))
            },
        }
    };
}

const REFUSED: [Refused; 13] = [
    Refused {
        name: "KUMI_MACHINE",
        successor: |value| (value == "off").then(|| "KUMI_DIR=off".to_owned()),
    },
    Refused {
        name: "KUMI_BOARD",
        successor: |value| {
            let value = if value == "off" { "none" } else { value };
            Some(format!("KUMI_ARBITER={value}"))
        },
    },
    now_in_lab!("KUMI_TLS", "tls"),
    now_in_lab!("KUMI_GUARD", "guard"),
    now_in_lab!("KUMI_FSBASE", "fsbase"),
    now_in_lab!("KUMI_DLOPEN", "dlopen"),
    now_in_lab!("KUMI_QUEUE", "queue"),
    now_in_lab!("KUMI_LOCKING", "locking"),
    now_in_lab!("KUMI_BPF", "bpf"),
    now_in_lab!("KUMI_BATCH", "batch"),
    now_in_lab!("KUMI_URING", "uring"),
    now_in_lab!("KUMI_STICKY", "sticky"),
    now_in_lab!("KUMI_TRACE_BUFFER", "trace_buffer"),
];

/// The names of variables of earlier versions. Setting one is an error.
pub fn refused_names() -> impl Iterator<Item = &'static str> {
    REFUSED.iter().map(|refused| refused.name)
}

pub(crate) fn refused() -> &'static [Refused] {
    &REFUSED
}

impl Refused {
    pub(crate) fn problem(&self, value: &OsStr) -> Problem {
        let value = value.to_string_lossy().into_owned();
        let successor = (self.successor)(&value);
        Problem { variable: self.name.to_owned(), value, why: Why::Replaced(successor) }
    }
}
