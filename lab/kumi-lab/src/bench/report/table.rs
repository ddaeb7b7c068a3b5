//! Plain tables for the terminal, and readable numbers.

/// Pads columns to their widest cell. Numbers are right-aligned.
pub fn plain(head: &[&str], body: &[Vec<String>]) -> String {
    let columns = head.len();
    let width = |c: usize| {
        body.iter().map(|row| row[c].chars().count()).chain([head[c].chars().count()]).max()
    };
    let widths: Vec<usize> = (0..columns).map(|c| width(c).unwrap_or(0)).collect();
    let mut text = String::new();
    let mut line = |cells: &[&str]| {
        let padded: Vec<String> = cells
            .iter()
            .zip(&widths)
            .map(|(cell, &w)| {
                if cell.starts_with(|c: char| c.is_ascii_digit()) {
                    format!("{cell:>w$}")
                } else {
                    format!("{cell:<w$}")
                }
            })
            .collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    };
    line(head);
    for row in body {
        line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

/// The same table as Markdown.
pub fn markdown(head: &[&str], body: &[Vec<String>]) -> String {
    let row = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
    let mut text = row(head.to_vec()) + &row(vec!["---"; head.len()]);
    for cells in body {
        text += &row(cells.iter().map(String::as_str).collect());
    }
    text
}

/// Formats with three or four significant digits, with thousands separated by commas.
pub fn number(x: f64) -> String {
    let digits = match x.abs() {
        a if a >= 100.0 || a == 0.0 => 0,
        a if a >= 10.0 => 1,
        a if a >= 1.0 => 2,
        a if a >= 0.1 => 3,
        a if a >= 0.001 => 5,
        _ => return format!("{x:.2e}"),
    };
    let text = format!("{x:.digits$}");
    let (whole, rest) = text.split_once('.').map_or((text.as_str(), None), |(w, r)| (w, Some(r)));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |w| ("-", w));
    let mut grouped = String::new();
    for (i, digit) in whole.chars().enumerate() {
        if i > 0 && (whole.len() - i) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    match rest {
        Some(rest) => format!("{sign}{grouped}.{rest}"),
        None => format!("{sign}{grouped}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_formatted() {
        for (x, text) in [
            (0.0, "0"),
            (1_234_567.8, "1,234,568"),
            (123.4, "123"),
            (12.34, "12.3"),
            (1.234, "1.23"),
            (0.1234, "0.123"),
            (0.001_29, "0.00129"),
            (-1234.0, "-1,234"),
        ] {
            assert_eq!(number(x), text);
        }
    }

    #[test]
    fn columns_are_aligned() {
        let body = vec![
            vec!["go".to_owned(), "80".to_owned()],
            vec!["kumihimo".to_owned(), "9".to_owned()],
        ];
        let text = plain(&["one", "ns"], &body);
        assert_eq!(text, "one       ns\ngo        80\nkumihimo   9\n");
        assert!(
            markdown(&["one", "ns"], &body)
                .starts_with("| one | ns |\n| --- | --- |\n| go | 80 |\n")
        );
    }
}
