//! Text output of the tour: paragraphs, tables, readable numbers. Lines have at most 100 columns.

use std::time::Duration;

const COLUMNS: usize = 100;

pub fn heading(number: u8, title: &str) {
    println!("\n{number}. {title}\n");
}

/// Prints a paragraph.
pub fn say(words: &str) {
    for line in wrap(words) {
        println!("{line}");
    }
}

fn wrap(words: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in words.split_whitespace() {
        let line = lines.last_mut().expect("one at least");
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= COLUMNS {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// Prints a table with words on the left and figures on the right.
pub fn table(head: &[&str], rows: &[Vec<String>]) {
    for line in layout(head, rows) {
        println!("{line}");
    }
}

fn layout(head: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let head: Vec<String> = head.iter().map(|&cell| cell.to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let widths: Vec<usize> = (0..head.len())
        .map(|c| all.iter().map(|row| row[c].chars().count()).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let cells = row.iter().zip(&widths).enumerate().map(|(c, (cell, &width))| match c {
            0 => format!("  {cell:<width$}"),
            _ => format!("  {cell:>width$}"),
        });
        cells.collect::<String>().trim_end().to_owned()
    };
    all.into_iter().map(line).collect()
}

/// Formats with three significant digits and a unit.
pub fn time(time: Duration) -> String {
    let s = time.as_secs_f64();
    match s {
        s if s >= 0.9995 => format!("{} s", three(s)),
        s if s >= 0.000_999_5 => format!("{} ms", three(s * 1e3)),
        s if s >= 0.000_000_999_5 => format!("{} us", three(s * 1e6)),
        s => format!("{} ns", three(s * 1e9)),
    }
}

/// Formats with three significant digits and a decimal unit.
pub fn bytes(bytes: u64) -> String {
    let b = bytes as f64;
    match bytes {
        0..1_000 => format!("{bytes} B"),
        1_000..999_500 => format!("{} KB", three(b / 1e3)),
        999_500..999_500_000 => format!("{} MB", three(b / 1e6)),
        _ => format!("{} GB", three(b / 1e9)),
    }
}

fn three(x: f64) -> String {
    let decimals = if x < 9.995 { 2 } else { usize::from(x < 99.95) };
    format!("{x:.decimals$}")
}

/// Formats with commas between groups of three digits.
pub fn number(n: impl TryInto<u64>) -> String {
    let digits = n.try_into().unwrap_or(u64::MAX).to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The ratio of `a` to `b`.
pub fn times(a: Duration, b: Duration) -> String {
    format!("{}x", three(a.as_secs_f64() / b.as_secs_f64().max(1e-9)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_wrapped_without_loss_of_words() {
        let words = "word ".repeat(100);
        let lines = wrap(&words);
        assert!(lines.iter().all(|line| line.len() <= COLUMNS));
        assert_eq!(lines.join(" ").split_whitespace().count(), 100);
    }

    #[test]
    fn figures_are_aligned() {
        let lines =
            layout(&["", "a"], &[vec!["one".into(), "1".into()], vec!["ten".into(), "10".into()]]);
        assert_eq!(lines, ["        a", "  one   1", "  ten  10"]);
    }

    #[test]
    fn times_have_three_figures() {
        let texts = [12, 1_234, 56_700, 890_000_000, 1_999_000_000, 61_000_000_000];
        let texts: Vec<String> =
            texts.into_iter().map(|ns| time(Duration::from_nanos(ns))).collect();
        assert_eq!(texts, ["12.0 ns", "1.23 us", "56.7 us", "890 ms", "2.00 s", "61.0 s"]);
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(
            [0, 999, 9_216, 1_500_000, 4_560_000_000].map(bytes),
            ["0 B", "999 B", "9.22 KB", "1.50 MB", "4.56 GB"]
        );
        assert_eq!(bytes(999_999), "1.00 MB");
    }

    #[test]
    fn numbers_have_commas() {
        assert_eq!(
            [0, 999, 1_000, 1_234_567].map(|n: u64| number(n)),
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
