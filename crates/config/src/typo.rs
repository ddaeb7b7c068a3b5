//! Detection of variables that are probably misspelled settings.

use crate::refused::refused_names;
use crate::table::VARIABLES;

/// Maximum edit distance between a misspelling and the intended variable.
const LARGEST: usize = 2;

/// Variables of the project's tests, laboratory programs and examples, besides those that start
/// with `KUMI_TEST_`. The runtime reads none of them.
const OF_TESTS: [&str; 16] = [
    "KUMI_ARBITER_CHILD",
    "KUMI_CLOCK",
    "KUMI_CORE_IN",
    "KUMI_BOUNDED",
    "KUMI_CRASHES",
    "KUMI_EXECED",
    "KUMI_GATE_ROLE",
    "KUMI_GATE_ROOM",
    "KUMI_HOSTILE",
    "KUMI_LEAK_MICROPROCESSES",
    "KUMI_LIBRARY",
    "KUMI_OF_THE_COMMAND",
    "KUMI_SCRIBBLE",
    "KUMI_SEED",
    "KUMI_STRESS_SECONDS",
    "KUMI_TRACED",
];

/// Returns whether `name` is a variable of the project's tests.
#[must_use]
pub fn is_test_variable(name: &str) -> bool {
    name.starts_with("KUMI_TEST_") || OF_TESTS.contains(&name)
}

/// Returns the variables of this process that resemble a setting, each with the setting of the
/// smallest edit distance. A variable that resembles no setting is assumed to belong to the
/// program.
#[must_use]
pub fn misspelled() -> Vec<(String, &'static str)> {
    let names = std::env::vars_os().filter_map(|(name, _)| name.into_string().ok());
    let mut all: Vec<_> =
        names.filter_map(|name| meant(&name).map(|setting| (name, setting))).collect();
    all.sort();
    all
}

pub(crate) fn meant(name: &str) -> Option<&'static str> {
    if !name.starts_with("KUMI_")
        || is_test_variable(name)
        || VARIABLES.iter().any(|setting| setting.name == name)
        || refused_names().any(|refused| refused == name)
    {
        return None;
    }
    let distances = VARIABLES.iter().map(|setting| (distance(name, setting.name), setting.name));
    distances.filter(|(n, _)| *n <= LARGEST).min_by_key(|(n, _)| *n).map(|(_, setting)| setting)
}

/// Returns the Levenshtein distance of two names, in bytes.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let above = row[j + 1];
            row[j + 1] = (diagonal + usize::from(x != y)).min(above + 1).min(row[j] + 1);
            diagonal = above;
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misspelled_names_yield_the_setting() {
        for (name, setting) in [
            ("KUMI_VP", Some("KUMI_VPS")),
            ("KUMI_EVENT", Some("KUMI_EVENTS")),
            ("KUMI_KERNEL_THREAD", Some("KUMI_KERNEL_THREADS")),
            ("KUMI_WATCHDGO", Some("KUMI_WATCHDOG")),
            ("KUMI_LABS", Some("KUMI_LAB")),
            ("KUMI_VPS", None),
            ("KUMI_TRACED", None),
            ("KUMI_TEST_SIDE", None),
            ("KUMI_BOARD", None),
            ("KUMI_MY_OWN_THING", None),
            ("PATH", None),
        ] {
            assert_eq!(meant(name), setting, "{name}");
        }
    }

    #[test]
    fn distance_is_levenshtein_and_symmetric() {
        for (a, b, n) in [("", "", 0), ("", "ab", 2), ("kitten", "sitting", 3), ("ab", "ba", 2)] {
            assert_eq!((distance(a, b), distance(b, a)), (n, n), "{a} {b}");
        }
    }
}
