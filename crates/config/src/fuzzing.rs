//! Entry points for the fuzzers.

use std::ffi::OsString;

use crate::environment::Parsed;
use crate::{Config, Error, Line};

/// Parses the variables that `lookup` finds. Returns the settings, their errors, and their
/// description.
pub fn parse(lookup: impl Fn(&str) -> Option<OsString>) -> (Config, Option<Error>, Vec<Line>) {
    let parsed = Parsed::of(lookup);
    let lines = parsed.describe(false);
    (parsed.config, parsed.error, lines)
}

/// Merges two values of `KUMI_LAB`; the second has precedence.
#[must_use]
pub fn merge(list: &str, more: &str) -> String {
    crate::lab::merge(list, more)
}

/// Returns the setting that a misspelled variable resembles.
#[must_use]
pub fn meant(name: &str) -> Option<&'static str> {
    crate::typo::meant(name)
}
