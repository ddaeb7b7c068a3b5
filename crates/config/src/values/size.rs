//! Sizes in bytes, in settings and on command lines.

use crate::values::number;

/// Parses a number of bytes with an optional unit: `b`, `k`, `m` or `g`, the last three optionally
/// followed by `b`, in either case. Units are powers of 1024. Returns `None` for any other text,
/// and if the size exceeds `usize`.
#[must_use]
pub fn bytes(text: &str) -> Option<usize> {
    let lower = text.to_ascii_lowercase();
    let digits = lower.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let shift = match &lower[digits.len()..] {
        "" | "b" => 0,
        "k" | "kb" => 10,
        "m" | "mb" => 20,
        "g" | "gb" => 30,
        _ => return None,
    };
    number(digits, 0..=usize::MAX)?.checked_mul(1 << shift)
}
