//! Names of microprocesses, and what those of equal workers have in common.

use crate::microprocess::record::Mp;

/// Characters between the beginning of a name and its number.
const SEPARATORS: [char; 6] = ['-', '_', '/', ' ', '.', '#'];

/// Returns the name of a microprocess; empty if it has none.
pub(crate) fn label(mp: &Mp) -> String {
    let mut label = [0; 47];
    let n = mp.label(&mut label);
    String::from_utf8_lossy(&label[..n]).into_owned()
}

/// Returns the beginning of a name, without a number at its end and what separates it, so that
/// equal workers have one name.
pub(crate) fn prefix(name: &str) -> &str {
    let of = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if of.len() == name.len() { name } else { of.trim_end_matches(SEPARATORS) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_of_a_name_has_no_number_at_its_end() {
        for (name, want) in [
            ("worker-12", "worker"),
            ("worker", "worker"),
            ("a/b/3", "a/b"),
            ("conn#7", "conn"),
            ("12", ""),
            ("x-", "x-"),
            ("", ""),
        ] {
            assert_eq!(prefix(name), want, "{name}");
        }
    }
}
