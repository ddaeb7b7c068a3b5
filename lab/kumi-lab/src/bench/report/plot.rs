//! Line charts as SVG: one for each metric that was measured at several values of a numeric key,
//! with a line for each contender.

use std::collections::BTreeMap;

use plotters::coord::Shift;
use plotters::prelude::*;

use super::row::{Rows, Sample};
use super::stats::quartiles;
use super::table;

const SIZE: (u32, u32) = (900, 460);
/// Space for the names at the right ends of the lines.
const LEGEND: u32 = 250;
/// An axis with a larger ratio between its ends is logarithmic.
const DECADES: f64 = 30.0;
/// Maximum number of lines in a chart.
const MOST: usize = 24;
/// Okabe and Ito's palette, suitable for colour-blind readers. Further lines repeat it with hollow
/// points.
pub const COLOURS: [RGBColor; 8] = [
    RGBColor(0, 0, 0),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 158, 115),
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(204, 121, 167),
    RGBColor(150, 150, 150),
];

/// A chart: its file name and its contents.
pub struct Plot {
    pub name: String,
    pub svg: String,
}

/// A line of a chart: the quartiles at each value of the key.
type Line = BTreeMap<Number, [f64; 3]>;

/// A chart before it is drawn.
struct Chart {
    name: String,
    unit: String,
    key: String,
    lines: Vec<(String, Line)>,
}

/// A number with a total order.
#[derive(Clone, Copy, PartialEq)]
struct Number(f64);
impl Eq for Number {}
impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Number {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

/// All charts for the rows of `bench`.
pub fn plots(bench: &str, rows: &Rows) -> Result<Vec<Plot>, String> {
    // A copy of another row is marked as such, and would cover it.
    let samples: Vec<&Sample> =
        rows.samples().filter(|sample| !sample.notes.contains_key("is")).collect();
    let mut metrics: Vec<&str> = Vec::new();
    for sample in &samples {
        if !metrics.contains(&sample.identity.metric.as_str()) {
            metrics.push(&sample.identity.metric);
        }
    }
    let mut plots = Vec::new();
    for metric in metrics {
        let of: Vec<&Sample> =
            samples.iter().copied().filter(|s| s.identity.metric == metric).collect();
        for (name, chart) in charts(&of, metric) {
            let svg = chart.draw(bench).map_err(|e| format!("{bench} {name}: {e}"))?;
            plots.push(Plot { name: format!("{bench}-{name}.svg"), svg });
        }
    }
    Ok(plots)
}

/// One chart; or, if it would have too many lines, one for each value of another numeric key.
fn charts(samples: &[&Sample], name: &str) -> Vec<(String, Chart)> {
    match Chart::of(samples, name) {
        Made::Chart(chart) => vec![(name.to_owned(), chart)],
        Made::Nothing => Vec::new(),
        Made::TooMany(key) => {
            let value = |sample: &Sample| {
                sample.identity.keys.get(&key).and_then(|text| text.parse().ok()).map(Number)
            };
            let mut values: Vec<Number> =
                samples.iter().filter_map(|sample| value(sample)).collect();
            values.sort();
            values.dedup();
            let of = |at: Number| -> Vec<&Sample> {
                samples.iter().copied().filter(|s| value(s) == Some(at)).collect()
            };
            values
                .into_iter()
                .flat_map(|at| charts(&of(at), &format!("{name}-{key}-{}", at.0)))
                .collect()
        }
    }
}

/// Result of charting some samples.
enum Made {
    Chart(Chart),
    /// There are too many lines, which this key can separate.
    TooMany(String),
    Nothing,
}

impl Chart {
    /// Uses the numeric key with the most values. Returns nothing if no line has a second point.
    fn of(samples: &[&Sample], name: &str) -> Made {
        let mut values: BTreeMap<&str, Vec<Number>> = BTreeMap::new();
        for (key, text) in samples.iter().flat_map(|s| &s.identity.keys) {
            // A negative number means that the value is not a number and the key is a word.
            let value = Number(text.parse().unwrap_or(-1.0));
            let of = values.entry(key).or_default();
            if !of.contains(&value) {
                of.push(value);
            }
        }
        values.retain(|_, of| of.len() > 1 && of.iter().all(|value| value.0 >= 0.0));
        let most = |but: &str| {
            let others = values.iter().filter(|(key, _)| **key != but);
            others.max_by_key(|(_, of)| of.len()).map(|(key, _)| (*key).to_owned())
        };
        let Some(key) = most("") else { return Made::Nothing };
        // Keys with the same value in all lines are omitted from the names.
        let mut common: Vec<&str> =
            samples.iter().flat_map(|s| s.identity.keys.keys().map(String::as_str)).collect();
        common.retain(|key| {
            samples.iter().all(|s| s.identity.keys.get(*key) == samples[0].identity.keys.get(*key))
        });
        let mut lines: Vec<(String, BTreeMap<Number, Vec<f64>>)> = Vec::new();
        for sample in samples {
            let Some(at) = sample.identity.keys.get(&key).and_then(|text| text.parse().ok()) else {
                continue;
            };
            let line = line_name(sample, &key, &common);
            let i = lines.iter().position(|(other, _)| *other == line).unwrap_or_else(|| {
                lines.push((line, BTreeMap::new()));
                lines.len() - 1
            });
            lines[i].1.entry(Number(at)).or_default().push(sample.value);
        }
        if lines.iter().all(|(_, points)| points.len() < 2) {
            return Made::Nothing;
        }
        if lines.len() > MOST {
            return most(&key).map_or(Made::Nothing, Made::TooMany);
        }
        let lines = lines.into_iter().map(|(name, points)| {
            (
                name,
                points.into_iter().filter_map(|(at, all)| Some((at, quartiles(&all)?))).collect(),
            )
        });
        let unit = samples.first().map(|first| first.unit.clone()).unwrap_or_default();
        Made::Chart(Chart { name: name.to_owned(), unit, key, lines: lines.collect() })
    }

    fn draw(&self, bench: &str) -> Result<String, Box<dyn std::error::Error>> {
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            root.fill(&WHITE)?;
            let title = format!("{bench}: {} ({}), median and quartiles", self.name, self.unit);
            let root = root.titled(&title, ("sans-serif", 18))?;
            let xs = || self.lines.iter().flat_map(|(_, line)| line.keys().map(|at| at.0));
            let ys = || self.lines.iter().flat_map(|(_, line)| line.values().flatten().copied());
            let (x, y) = (Axis::of(xs()), Axis::of(ys()));
            match (x.logarithmic, y.logarithmic) {
                (true, true) => {
                    self.on(&root, (x.low..x.high).log_scale(), (y.low..y.high).log_scale())?
                }
                (true, false) => self.on(&root, (x.low..x.high).log_scale(), y.low..y.high)?,
                (false, true) => self.on(&root, x.low..x.high, (y.low..y.high).log_scale())?,
                (false, false) => self.on(&root, x.low..x.high, y.low..y.high)?,
            }
            root.present()?;
        }
        Ok(svg)
    }

    fn on<X, Y>(
        &self,
        root: &DrawingArea<SVGBackend<'_>, Shift>,
        x: X,
        y: Y,
    ) -> Result<(), Box<dyn std::error::Error>>
    where
        X: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
        Y: plotters::coord::ranged1d::AsRangedCoord<Value = f64>,
        X::CoordDescType: plotters::coord::ranged1d::ValueFormatter<f64>,
        Y::CoordDescType: plotters::coord::ranged1d::ValueFormatter<f64>,
    {
        let mut chart = ChartBuilder::on(root)
            .margin(8)
            .margin_right(LEGEND)
            .x_label_area_size(36)
            .y_label_area_size(76)
            .build_cartesian_2d(x, y)?;
        let number = |value: &f64| match *value {
            few if few < 100.0 && few.fract() == 0.0 => few.to_string(),
            other => table::number(other),
        };
        chart
            .configure_mesh()
            .x_desc(&self.key)
            .y_desc(&self.unit)
            .x_label_formatter(&number)
            .y_label_formatter(&number)
            .draw()?;
        let right = SIZE.0 as i32 - LEGEND as i32 + 12;
        for (i, (name, line)) in self.lines.iter().enumerate() {
            let (colour, hollow) = (COLOURS[i % COLOURS.len()], i >= COLOURS.len());
            chart.draw_series(LineSeries::new(
                line.iter().map(|(at, [_, median, _])| (at.0, *median)),
                colour,
            ))?;
            let whisker = |(at, [low, _, high]): (&Number, &[f64; 3])| {
                PathElement::new(vec![(at.0, *low), (at.0, *high)], colour.mix(0.6))
            };
            chart.draw_series(line.iter().map(whisker))?;
            let filled = if hollow { colour.stroke_width(1) } else { colour.filled() };
            chart.draw_series(
                line.iter().map(|(at, [_, median, _])| Circle::new((at.0, *median), 3, filled)),
            )?;
            let at = 40 + 17 * i as i32;
            root.draw(&Circle::new((right, at + 6), 4, filled))?;
            root.draw(&Text::new(name.clone(), (right + 10, at), ("sans-serif", 13)))?;
        }
        Ok(())
    }
}

/// Name of a line: everything that distinguishes it from others.
fn line_name(sample: &Sample, key: &str, common: &[&str]) -> String {
    let id = &sample.identity;
    let mut words = vec![id.runtime.clone()];
    words.extend([&id.variant, &id.queue].into_iter().filter(|word| *word != "-").cloned());
    words.extend(
        id.keys
            .iter()
            .filter(|(other, _)| *other != key && !common.contains(&other.as_str()))
            .map(|(key, value)| format!("{key}={value}")),
    );
    if id.vps != 1 {
        words.push(format!("vps={}", id.vps));
    }
    words.join(" ")
}

struct Axis {
    low: f64,
    high: f64,
    logarithmic: bool,
}

impl Axis {
    fn of(values: impl Iterator<Item = f64>) -> Axis {
        let (low, high) =
            values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        if low > 0.0 && high / low > DECADES {
            return Axis { low: low / 1.3, high: high * 1.3, logarithmic: true };
        }
        // The axis starts at zero, so that lengths are proportional. If all values are zero, the
        // axis needs any positive length.
        Axis {
            low: low.min(0.0),
            high: if high > 0.0 { high * 1.05 } else { 1.0 },
            logarithmic: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::row::tests::from;
    use super::*;

    fn rows(lines: &[(&str, &str)]) -> Rows {
        let mut rows = Rows::default();
        for (runtime, line) in lines {
            rows.add(Sample::parse(line, &from("echo", runtime, 1)).unwrap()).unwrap();
        }
        rows
    }

    #[test]
    fn each_contender_has_a_line_over_the_numeric_key() {
        let plots = plots(
            "echo",
            &rows(&[
                ("go", "rps 10 1/s connections=1"),
                ("go", "rps 12 1/s connections=1"),
                ("go", "rps 900 1/s connections=1000"),
                ("tokio", "rps 11 1/s connections=1"),
                ("tokio", "rps 950 1/s connections=1000"),
                ("kumihimo", "rps 950 1/s connections=1000 batch=plain"),
                ("go", "p50 0 us connections=1"),
                ("go", "p50 3 us connections=10"),
                ("go", "cpu 10 us"),
                ("go", "alone 10 us connections=1"),
            ]),
        )
        .unwrap();
        let names: Vec<_> = plots.iter().map(|plot| plot.name.as_str()).collect();
        assert_eq!(names, ["echo-rps.svg", "echo-p50.svg"]);
        let svg = &plots[0].svg;
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        for word in [
            "go full ring",
            "tokio full ring",
            "kumihimo full ring batch=plain",
            "connections",
            "1/s",
        ] {
            assert!(svg.contains(word), "{word}");
        }
    }

    #[test]
    fn plots_with_too_many_lines_are_split_by_another_number() {
        let mut lines = Vec::new();
        for (word, callers) in (0..15).flat_map(|word| [1, 16, 64].map(|callers| (word, callers))) {
            for cores in [1, 2] {
                lines.push(format!(
                    "calls {callers} 1/s callers={callers} cores={cores} way=w{word} check=all"
                ));
            }
        }
        let lines: Vec<_> = lines.iter().map(|line| ("go", line.as_str())).collect();
        let plots = plots("rpc", &rows(&lines)).unwrap();
        let names: Vec<_> = plots.iter().map(|plot| plot.name.as_str()).collect();
        assert_eq!(names, ["rpc-calls-cores-1.svg", "rpc-calls-cores-2.svg"]);
        assert!(
            plots
                .iter()
                .all(|plot| plot.svg.contains("way=w14") && !plot.svg.contains("check=all"))
        );
    }

    #[test]
    fn keys_without_numbers_are_no_axis() {
        assert!(
            plots("stall", &rows(&[("go", "p99 1 us stall=none"), ("go", "p99 2 us stall=read")]))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn axis_includes_all_values() {
        let axis = Axis::of([1.0, 10_000.0].into_iter());
        assert!(axis.logarithmic && axis.low > 0.0 && axis.high > 10_000.0);
        let axis = Axis::of([0.0, 10_000.0].into_iter());
        assert!(!axis.logarithmic && axis.low == 0.0);
    }
}
