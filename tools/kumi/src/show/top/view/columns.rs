//! Columns of `kumi top`: their heads, and cells of fixed widths.

use kumihimo_machine::top::TopSort;
use unicode_width::UnicodeWidthStr;

/// Columns of address spaces, of groups and of the usage table. A width of 0 takes the rest of the
/// line.
pub const SPACE: [(&str, usize); 9] = [
    ("SPACE", 7),
    ("PROGRAM", 13),
    ("PID", 8),
    ("VPS", 4),
    ("CPU", 6),
    ("LIVING", 8),
    ("SWITCH/s", 9),
    ("SPAWN/s", 8),
    ("BATCH/s", 8),
];
pub const GROUP: [(&str, usize); 4] = [("COUNT", 9), ("CPU%", 8), ("WAITED", 9), ("GROUP", 0)];
pub const USED: [(&str, usize); 5] =
    [("KIND", 14), ("SERIAL", 16), ("OWNER", 17), ("STATE", 14), ("NAMES", 0)];

/// A column of microprocesses.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its head.
    pub label: &'static str,
    /// The sort key that it shows.
    pub sort: TopSort,
    width: usize,
    /// Whether a narrow screen has it, too.
    is_kept: bool,
}

const fn column(label: &'static str, sort: TopSort, width: usize, is_kept: bool) -> Column {
    Column { label, sort, width, is_kept }
}

/// Columns of microprocesses in their order.
const ALL: [Column; 10] = [
    column("ID", TopSort::Id, 12, true),
    column("NAME", TopSort::Name, 14, true),
    column("CPU%", TopSort::Cpu, 6, true),
    column("STATE", TopSort::State, 10, true),
    column("PRI", TopSort::Priority, 6, false),
    column("VP", TopSort::Vp, 4, false),
    column("SWITCH/s", TopSort::Switches, 9, false),
    column("STACK", TopSort::Stack, 7, false),
    column("FOR", TopSort::WaitTime, 7, true),
    column("WAITS-FOR", TopSort::WaitsFor, 0, true),
];
/// Width that the last column has at least.
const REST: usize = 16;
/// Width of the indentation.
const INDENT: usize = 2;
/// Largest width of a name, on a wide screen.
const WIDEST_NAME: usize = 34;

/// Returns the columns with their widths that a screen of this width has room for, among them that
/// of the sort key.
pub fn of_microprocesses(screen: u16, sort: TopSort) -> Vec<(Column, usize)> {
    let is_kept = |column: &Column| column.is_kept || column.sort == sort;
    let kept: usize = ALL.iter().filter(|column| is_kept(column)).map(|column| column.width).sum();
    let mut room = usize::from(screen).saturating_sub(INDENT + REST + kept);
    let mut shown = Vec::new();
    for column in ALL {
        if !is_kept(&column) {
            if column.width > room {
                continue;
            }
            room -= column.width;
        }
        shown.push((column, column.width));
    }
    if let Some((_, width)) = shown.iter_mut().find(|(column, _)| column.sort == TopSort::Name) {
        *width = (*width + room / 2).min(WIDEST_NAME);
    }
    shown
}

/// The heads of columns in one line.
pub fn labels(columns: &[(&str, usize)], indent: &str) -> String {
    let mut line = indent.to_owned();
    for (label, width) in columns {
        pad(&mut line, label, *width);
    }
    line
}

/// Appends a cell, truncated or padded to its width, which includes a gap of one column. A width of
/// 0 takes the rest of the line.
pub fn pad(line: &mut String, text: &str, width: usize) {
    if width == 0 {
        line.push_str(text);
        return;
    }
    let mut room = width - 1;
    for c in text.chars() {
        let wide = c.to_string().width();
        if wide > room {
            break;
        }
        room -= wide;
        line.push(c);
    }
    line.extend(std::iter::repeat_n(' ', room + 1));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn narrow_screen_keeps_the_column_of_the_sort_key() {
        let labels = |width, sort| -> Vec<&str> {
            of_microprocesses(width, sort).iter().map(|(column, _)| column.label).collect()
        };
        let least = ["ID", "NAME", "CPU%", "STATE", "FOR", "WAITS-FOR"];
        assert_eq!(labels(60, TopSort::Cpu), least);
        assert!(labels(60, TopSort::Stack).contains(&"STACK"));
        assert_eq!(labels(200, TopSort::Cpu).len(), ALL.len());
        let width = of_microprocesses(300, TopSort::Cpu)[1].1;
        assert_eq!(width, WIDEST_NAME);
    }
}
