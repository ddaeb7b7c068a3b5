//! Text of other programs, made safe for a terminal, and tables.

use std::fmt::{self, Write as _};
use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use kumihimo_machine::short_id::ShortId;
use kumihimo_resource::id::Id;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Maximum widths of a name and of a reason for waiting. Longer text is truncated.
const NAME: usize = 40;
const STATE: usize = 64;

/// Text of another program, with characters that could control the terminal shown as escapes.
pub struct Plain<'a>(pub &'a str);

/// Control characters, and characters that change the text direction.
fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(steers) {
            f.write_str(&rest[..at])?;
            let mut chars = rest[at..].chars();
            let steering = chars.next().expect("found");
            write!(f, "{}", steering.escape_default())?;
            rest = chars.as_str();
        }
        f.write_str(rest)
    }
}

/// A name of limited width.
pub struct Name<'a>(pub &'a str);

/// A reason for waiting, of limited width.
pub struct Doing<'a>(pub &'a str);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        cut(self.0, NAME, f)
    }
}

impl fmt::Display for Doing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        cut(self.0, STATE, f)
    }
}

fn cut(text: &str, columns: usize, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut width = 0;
    for (at, c) in text.char_indices() {
        width += c.width().unwrap_or(1);
        if width > columns {
            return write!(f, "{}~", Plain(&text[..at]));
        }
    }
    write!(f, "{}", Plain(text))
}

/// Returns the form of an ID that users type.
pub fn short(id: Id) -> ShortId {
    ShortId(id)
}

fn width(cell: &str) -> usize {
    if cell.is_ascii() { cell.len() } else { cell.width() }
}

/// Writes a table: `cell` appends the text of one cell. Rows are not allocated individually.
///
/// # Errors
/// As writing to `out`.
pub fn table<R, const N: usize>(
    out: &mut impl Write,
    heads: [&str; N],
    rows: &[R],
    cell: impl Fn(&R, usize, &mut String),
) -> io::Result<()> {
    let mut text = String::new();
    let mut widths = heads.map(width);
    // The last column is not padded.
    for row in rows {
        for (column, widest) in widths.iter_mut().enumerate().take(N - 1) {
            text.clear();
            cell(row, column, &mut text);
            *widest = width(&text).max(*widest);
        }
    }
    let mut line = |cell: &mut dyn FnMut(usize, &mut String)| -> io::Result<()> {
        let mut gap = 0;
        for (column, widest) in widths.iter().enumerate() {
            text.clear();
            cell(column, &mut text);
            if !text.is_empty() {
                write!(out, "{:gap$}{text}", "")?;
                gap = 0;
            }
            gap += widest.saturating_sub(width(&text)) + 2;
        }
        writeln!(out)
    };
    line(&mut |column, text| text.push_str(heads[column]))?;
    for row in rows {
        line(&mut |column, text| cell(row, column, text))?;
    }
    Ok(())
}

/// Appends to a cell.
pub fn put(cell: &mut String, what: impl fmt::Display) {
    write!(cell, "{what}").expect("a String takes all");
}

/// Formats nanoseconds in six characters at most: `950ns`, `12.3us`, `432us`, `4.5s`, `17m`, `3h`.
pub fn duration(ns: u64) -> String {
    let scaled = |n: f64, unit: &str| {
        if n < 99.95 { format!("{n:.1}{unit}") } else { format!("{n:.0}{unit}") }
    };
    match ns as f64 {
        n if n < 1e3 => format!("{ns}ns"),
        n if n < 999_500.0 => scaled(n / 1e3, "us"),
        n if n < 999.5e6 => scaled(n / 1e6, "ms"),
        n if n < 99.95e9 => scaled(n / 1e9, "s"),
        n if n < 100.0 * 60e9 => format!("{:.0}m", n / 60e9),
        n => format!("{:.0}h", n / 3600e9),
    }
}

/// Writes one JSON object as a line.
///
/// # Errors
/// As writing to `out`.
pub fn json_line(out: &mut impl Write, what: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *out, what)?;
    writeln!(out)
}

/// Exit code of a command that has written to standard output. A reader that has closed the pipe
/// (`| head`) is not an error and causes no message.
pub fn written(done: io::Result<ExitCode>) -> Result<ExitCode, String> {
    match done {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(e) => Err(format!("standard output: {e}")),
        Ok(code) => Ok(code),
    }
}

/// Prints a line to standard output, as `println!` does. Ends the program without a message if the
/// reader has closed the pipe, and with one if the line cannot be written.
macro_rules! say {
    ($($line:tt)*) => { $crate::text::print_line(format_args!($($line)*)) };
}
pub(crate) use say;

/// What `say!` does.
pub fn print_line(line: fmt::Arguments<'_>) {
    let done = writeln!(io::stdout().lock(), "{line}");
    if done.is_err() {
        // The command has nothing else to do, and no reader.
        let code = crate::ended(written(done.map(|()| ExitCode::SUCCESS)));
        std::process::exit(i32::from(code != ExitCode::SUCCESS));
    }
}

/// Exit code 0 if everything succeeded, otherwise 1.
pub fn code(all: bool) -> ExitCode {
    if all { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_removed() {
        assert_eq!(Plain("worker \u{e9}").to_string(), "worker \u{e9}");
        assert_eq!(
            Plain("\x1b[2Ja\nb\u{202e}c\u{9b}").to_string(),
            "\\u{1b}[2Ja\\nb\\u{202e}c\\u{9b}"
        );
        assert_eq!(Name(&"x".repeat(100)).to_string(), format!("{}~", "x".repeat(NAME)));
        assert_eq!(Name(&"\u{7e54}".repeat(100)).to_string().width(), NAME + 1);
    }

    #[test]
    fn durations_are_short() {
        for (ns, want) in [
            (0, "0ns"),
            (999, "999ns"),
            (1_500, "1.5us"),
            (431_900, "432us"),
            (999_900, "1.0ms"),
            (2_000_000, "2.0ms"),
            (99_900_000_000, "99.9s"),
            (180_000_000_000, "3m"),
            (36_000_000_000_000, "10h"),
        ] {
            assert_eq!(duration(ns), want);
        }
    }

    #[test]
    fn typed_ids_are_parsed() {
        for (long, want) in [
            ("12.microprocess.42.7", "12.42.7"),
            ("12.vp.0.1", "12.vp.0.1"),
            ("1/12.42.7", "1/12.microprocess.42.7"),
        ] {
            let id: Id = long.parse().unwrap();
            assert_eq!(short(id).to_string(), want);
            assert_eq!(want.parse::<Id>(), Ok(id));
        }
    }

    #[test]
    fn columns_are_as_wide_as_their_widest() {
        let mut out = Vec::new();
        let rows = [("a", 1), ("\u{7e54}\u{7e54}", 20), ("", 3)];
        table(&mut out, ["X", "NUMBER"], &rows, |row, column, cell| match column {
            0 => put(cell, row.0),
            _ => put(cell, row.1),
        })
        .unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "X     NUMBER\na     1\n\u{7e54}\u{7e54}  20\n      3\n"
        );
    }
}
