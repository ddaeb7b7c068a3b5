//! Numbers of `kumi top` as short texts.

/// Formats a part of one core in percent, without the sign; unknown: `-`.
pub fn percent(cores: Option<f64>) -> String {
    cores.map_or_else(|| "-".to_owned(), |cores| format!("{:.1}", cores * 100.0))
}

/// Formats a rate: `999`, `1.2k`, `3.4M`; unknown: `-`.
pub fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(n) if n < 9.95 && n > 0.0 => format!("{n:.1}"),
        Some(n) if n < 999.5 => format!("{n:.0}"),
        Some(n) if n < 99_950.0 => format!("{:.1}k", n / 1e3),
        Some(n) if n < 999_500.0 => format!("{:.0}k", n / 1e3),
        Some(n) if n < 99_950_000.0 => format!("{:.1}M", n / 1e6),
        Some(n) => format!("{:.0}M", n / 1e6),
    }
}

/// Formats a number of bytes: `640`, `12K`, `3.5M`.
pub fn bytes(n: u64) -> String {
    match n {
        0..10_000 => n.to_string(),
        10_000..10_240_000 => format!("{}K", n / 1024),
        n => format!("{:.1}M", n as f64 / 1_048_576.0),
    }
}

/// Width of the indentation at a depth of the tree, which another program sends.
pub fn indent(depth: u16) -> usize {
    usize::from(depth.min(20)) * 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let rates = [0.0, 0.25, 999.0, 1_234.0, 123_456.0, 5e6, 2e8];
        let texts = rates.map(|n| rate(Some(n)));
        assert_eq!(texts, ["0", "0.2", "999", "1.2k", "123k", "5.0M", "200M"]);
        assert_eq!(
            (rate(None), percent(None), percent(Some(0.1234))),
            ("-".into(), "-".into(), "12.3".into())
        );
        assert_eq!([640, 9_999, 65_536, 20 << 20].map(bytes), ["640", "9999", "64K", "20.0M"]);
    }
}
