//! A chart of the figures of a run: a bar for what was measured, a line for what was to be reached.

use std::fmt::Write;

use super::{Run, cells};

const WIDTH: f64 = 900.0;
const LEFT: f64 = 12.0;
/// Room for the numbers at the right.
const NUMBERS: f64 = 160.0;
const EACH: f64 = 40.0;
/// Characters of a label that fit the width.
const LABEL: usize = 125;

/// One bar.
struct Bar {
    label: String,
    value: f64,
    number: String,
    /// The limit, where the figure has one.
    limit: Option<f64>,
    is_reached: bool,
}

/// The chart; none where the run has no numbers.
///
/// A bar's length is the measured value divided by the limit, on a logarithmic scale from a
/// hundredth to a hundredfold, so that figures of different units share a chart.
pub fn draw(run: &Run) -> Option<String> {
    let mut bars: Vec<Bar> = run.figures.iter().filter_map(|line| bar(line)).collect();
    let mut legend =
        "Measured against the limit (dashed), logarithmic. Blue: reached; orange: missed.";
    if bars.is_empty() {
        bars = medians(run);
        legend = "Medians against the greatest (dashed), logarithmic.";
    }
    if bars.is_empty() {
        return None;
    }
    let height = EACH * bars.len() as f64 + 34.0;
    let room = WIDTH - LEFT - NUMBERS;
    // Decades from -2 to 2.
    let x = |ratio: f64| LEFT + room * (ratio.max(1e-2).log10().min(2.0) + 2.0) / 4.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (i, bar) in bars.iter().enumerate() {
        let top = EACH * i as f64 + 6.0;
        let ratio = bar.limit.filter(|limit| *limit > 0.0).map_or(1.0, |limit| bar.value / limit);
        let colour = if bar.is_reached { "#4a8fc0" } else { "#d0803c" };
        let (label, right) = (escape(&bar.label), x(ratio));
        writeln!(svg, "<text x=\"{LEFT}\" y=\"{:.1}\">{label}</text>", top + 12.0).ok()?;
        writeln!(
            svg,
            "<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"{:.1}\" height=\"14\" fill=\"{colour}\"/>",
            top + 17.0,
            right - LEFT
        )
        .ok()?;
        let (at, base) = (right + 6.0, top + 28.0);
        let number = escape(&bar.number);
        writeln!(svg, "<text x=\"{at:.1}\" y=\"{base:.1}\">{number}</text>").ok()?;
    }
    let (limit, bottom) = (x(1.0), EACH * bars.len() as f64 + 6.0);
    writeln!(
        svg,
        "<path d=\"M {limit:.1} 4 V {bottom:.1}\" stroke=\"black\" stroke-dasharray=\"4 3\"/>"
    )
    .ok()?;
    let base = bottom + 18.0;
    writeln!(svg, "<text x=\"{LEFT}\" y=\"{base:.1}\">{legend}</text>\n</svg>").ok()?;
    Some(svg)
}

/// The bar of a row `| figure | vps | to reach | measured | outcome |`.
fn bar(line: &str) -> Option<Bar> {
    let cells = cells(line);
    let [figure, vps, asked, measured, outcome] = cells[..] else { return None };
    let value = number(measured)?;
    let limit = asked.trim_start_matches(['<', '>', '=', ' ']).split([' ', ',']).next();
    // `9,216` has its comma inside of the number.
    let limit = number(asked.trim_start_matches(['<', '>', '=', ' '])).or(limit.and_then(number));
    let mut label = format!("{figure}, VPs: {vps}");
    if label.chars().count() > LABEL {
        label = label.chars().take(LABEL - 3).chain("...".chars()).collect();
    }
    let number = format!("{measured} ({asked})");
    Some(Bar { label, value, number, limit, is_reached: outcome.starts_with("reached") })
}

/// The bars of a run without figures: the medians of its first metric.
fn medians(run: &Run) -> Vec<Bar> {
    let rows: Vec<Vec<&str>> = run.medians.iter().map(|line| cells(line)).collect();
    let first = rows.first().and_then(|row| row.first().copied());
    let rows = rows.iter().filter(|row| row.len() > 8 && row.first().copied() == first);
    let rows: Vec<_> = rows.filter_map(|row| Some((row, number(row[5])?))).collect();
    let most = rows.iter().map(|(_, value)| *value).fold(f64::MIN_POSITIVE, f64::max);
    let bar = |(row, value): &(&Vec<&str>, f64)| {
        let label = [row[0], row[1], row[2], row[10]].join(" ").replace(" - ", " ");
        Bar {
            label: format!("{}, VPs: {}", label.trim(), row[4]),
            value: *value,
            number: format!("{} {}", row[5], row[8]),
            limit: Some(most),
            is_reached: true,
        }
    };
    rows.iter().filter(|(row, _)| row.len() > 10).map(bar).collect()
}

fn number(text: &str) -> Option<f64> {
    text.replace(',', "").parse().ok()
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_bars() {
        let one = bar("| rss / go | 1 | <= 9,216 | 9,006 | reached |").unwrap();
        assert_eq!((one.value, one.limit, one.is_reached), (9006.0, Some(9216.0), true));
        let aim = bar("| x | 2 | <= 1.25, aim <= 1.15 | 1.36 | missed |").unwrap();
        assert_eq!((aim.limit, aim.is_reached), (Some(1.25), false));
        assert!(bar("| x | 8 | >= 4.30 | - | missed (not measured) |").is_none());
    }
}
