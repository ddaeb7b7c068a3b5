//! Names of machines, and the epoch of a run-time directory.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Length of the longest name of a machine: that of a label of a DNS name.
pub const LONGEST_NAME: usize = 63;

/// Checks the name of a machine: a lower-case letter, then lower-case letters, digits and hyphens;
/// at most 63. So no name can be taken for the number of an address space.
///
/// # Errors
/// Returns [`Error::Invalid`] with the reason.
pub fn check_name(name: &str) -> Result<(), Error> {
    let wrong =
        |why: &str| Err(Error::Invalid(format!("{name:?} is not a valid machine name: {why}")));
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    match name.as_bytes() {
        [] => wrong("it is empty"),
        bytes if bytes.len() > LONGEST_NAME => {
            wrong(&format!("it is longer than {LONGEST_NAME} bytes"))
        }
        bytes if !bytes.iter().copied().all(is_allowed) => {
            wrong("it contains something other than a-z, 0-9 and hyphens")
        }
        [first, ..] if !first.is_ascii_lowercase() => wrong("it does not begin with a letter"),
        [.., b'-'] => wrong("it ends with a hyphen"),
        _ if name == "all" => wrong("`all` means every machine"),
        _ => Ok(()),
    }
}

/// Distinguishes the IDs of a run-time directory from those of the next directory at its place.
/// IDs begin anew after a reboot, because the directory usually is in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Epoch(pub u64);

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for Epoch {
    type Err = Error;

    fn from_str(text: &str) -> Result<Epoch, Error> {
        let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let digits = Some(text).filter(|text| text.len() == 16 && text.bytes().all(is_hex));
        digits.and_then(|text| u64::from_str_radix(text, 16).ok()).map(Epoch).ok_or_else(|| {
            Error::Invalid(format!("{text:?} is no epoch: expected 16 digits of 0-9 and a-f"))
        })
    }
}

impl From<Epoch> for String {
    fn from(epoch: Epoch) -> String {
        epoch.to_string()
    }
}

impl TryFrom<String> for Epoch {
    type Error = Error;

    fn try_from(text: String) -> Result<Epoch, Error> {
        text.parse()
    }
}

/// A machine as users name it: `build7`, or with an epoch, `build7@9f3a6f1e20c45b77`, which
/// excludes later epochs of that machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineName {
    /// The name.
    pub name: String,
    /// The epoch, if one was given.
    pub epoch: Option<Epoch>,
}

impl FromStr for MachineName {
    type Err = Error;

    fn from_str(text: &str) -> Result<MachineName, Error> {
        let (name, epoch) = match text.split_once('@') {
            Some((name, epoch)) => (name, Some(epoch.parse()?)),
            None => (text, None),
        };
        check_name(name)?;
        Ok(MachineName { name: name.to_owned(), epoch })
    }
}

impl fmt::Display for MachineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        self.epoch.map_or(Ok(()), |epoch| write!(f, "@{epoch}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_epochs_are_parsed() {
        let plain: MachineName = "build7".parse().unwrap();
        assert_eq!((plain.name.as_str(), plain.epoch), ("build7", None));
        let text = "build-7@00000000000000ff";
        let exact: MachineName = text.parse().unwrap();
        assert_eq!(exact.epoch, Some(Epoch(255)));
        assert_eq!(exact.to_string(), text);
    }

    #[test]
    fn wrong_names_are_refused() {
        let long = "x".repeat(LONGEST_NAME + 1);
        for (name, why) in [
            ("", "empty"),
            ("7build", "does not begin with a letter"),
            ("12", "does not begin with a letter"),
            ("Build7", "something other"),
            ("build_7", "something other"),
            ("build7.example", "something other"),
            ("build\u{301}", "something other"),
            ("build-", "ends with a hyphen"),
            ("all", "every machine"),
            (&long, "longer than 63"),
            ("build7@ff", "no epoch"),
            ("build7@00000000000000FF", "no epoch"),
        ] {
            let error = name.parse::<MachineName>().expect_err(name);
            assert!(matches!(error, Error::Invalid(_)) && error.to_string().contains(why));
        }
    }
}
