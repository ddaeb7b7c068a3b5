//! Variables of earlier versions, which are refused.

use std::ffi::{OsStr, OsString};

use crate::error::{Problem, Why};
use crate::lab::{self, KEYS, Lab};
use crate::table::{Config, LAB, VARIABLES};

/// Variable of an earlier version.
struct Refused {
    name: &'static str,
    successor: Successor,
}

/// Replacement of a variable.
enum Successor {
    /// A key of `KUMI_LAB`.
    Key(&'static str),
    /// Another variable, with the old value or its new form.
    Variable(&'static str, fn(&str) -> &str),
    /// An assignment that replaces one value; other values have no replacement.
    Assignment(&'static str, &'static str),
}

const REFUSED: [Refused; 13] =
    [
        Refused { name: "KUMI_MACHINE", successor: Successor::Assignment("off", "KUMI_DIR=off") },
        Refused {
            name: "KUMI_BOARD",
            successor: Successor::Variable("KUMI_ARBITER", |value| {
                if value == "off" { "none" } else { value }
            }),
        },
        Refused { name: "KUMI_TLS", successor: Successor::Key("tls") },
        Refused { name: "KUMI_GUARD", successor: Successor::Key("guard") },
        Refused { name: "KUMI_FSBASE", successor: Successor::Key("fsbase") },
        Refused { name: "KUMI_DLOPEN", successor: Successor::Key("dlopen") },
        Refused { name: "KUMI_QUEUE", successor: Successor::Key("queue") },
        Refused { name: "KUMI_LOCKING", successor: Successor::Key("locking") },
        Refused { name: "KUMI_BPF", successor: Successor::Key("bpf") },
        Refused { name: "KUMI_BATCH", successor: Successor::Key("batch") },
        Refused { name: "KUMI_URING", successor: Successor::Key("uring") },
        Refused { name: "KUMI_STICKY", successor: Successor::Key("sticky") },
        Refused { name: "KUMI_TRACE_BUFFER", successor: Successor::Key("trace_buffer") },
    ];

/// Returns the names of variables of earlier versions. Setting one is an error.
pub fn refused_names() -> impl Iterator<Item = &'static str> {
    REFUSED.iter().map(|refused| refused.name)
}

/// Returns a problem for each variable of an earlier version that `value_of` finds, with the
/// assignment that replaces it. One assignment contains all pairs of `KUMI_LAB`, including those
/// that are already set, because a second assignment would override the first.
pub(crate) fn problems(value_of: impl Fn(&str) -> Option<OsString>) -> Vec<Problem> {
    let text = |value: OsString| value.to_string_lossy().into_owned();
    let found: Vec<(&Refused, String)> = REFUSED
        .iter()
        .filter_map(|refused| Some((refused, text(value_of(refused.name)?))))
        .collect();
    let pairs: Vec<String> =
        found.iter().filter_map(|(refused, value)| refused.pair(value)).collect();
    let own = value_of(LAB).map(text).unwrap_or_default();
    let lab = format!("{LAB}={}", lab::merge(&own, &pairs.join(",")));
    let problem = |(refused, value): (&Refused, String)| {
        let why = Why::Replaced(refused.assignment(&value, &lab));
        Problem { variable: refused.name.to_owned(), value, why }
    };
    found.into_iter().map(problem).collect()
}

impl Refused {
    /// Returns the pair of `KUMI_LAB` that replaces the variable with this value, if the value is
    /// valid.
    fn pair(&self, value: &str) -> Option<String> {
        let Successor::Key(name) = self.successor else { return None };
        let key = KEYS.iter().find(|key| key.name == name)?;
        // Values of `KUMI_LAB` contain no `=`.
        let value = value.replace('=', ":");
        (key.read)(&mut Lab::default(), &value).then(|| format!("{name}={value}"))
    }

    /// Returns the assignment that replaces the variable with this value. For an invalid value, it
    /// contains the allowed values. `lab` is the assignment of all pairs.
    fn assignment(&self, value: &str, lab: &str) -> Option<String> {
        match self.successor {
            Successor::Key(name) => Some(match self.pair(value) {
                Some(_) => lab.to_owned(),
                None => {
                    let allowed = KEYS.iter().find(|key| key.name == name)?.allowed;
                    format!("{LAB}={name}=VALUE ({allowed})")
                }
            }),
            Successor::Variable(name, new_form) => {
                let setting = VARIABLES.iter().find(|setting| setting.name == name)?;
                let value = new_form(value);
                let is_valid = (setting.read)(&mut Config::default(), OsStr::new(value));
                Some(match is_valid {
                    true => format!("{name}={value}"),
                    false => format!("{name}=VALUE ({})", setting.allowed),
                })
            }
            Successor::Assignment(only, assignment) => {
                (value == only).then(|| assignment.to_owned())
            }
        }
    }
}
