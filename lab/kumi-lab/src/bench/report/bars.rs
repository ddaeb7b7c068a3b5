//! Bar charts as SVG: P1's first load for each organisation.

use plotters::prelude::*;

use super::plot::{COLOURS, Plot};
use super::row::{Row, Rows};
use super::table;

const SIZE: (u32, u32) = (900, 420);
/// Space for the organisations' names on the left.
const NAMES: i32 = 230;
/// Space for the numbers on the right.
const NUMBERS: i32 = 110;
const TOP: i32 = 60;
const BOTTOM: i32 = 40;

/// Metrics of the paper's figure (Fig. 2: elapsed, system and user time), with their descriptions.
const METRICS: [(&str, &str); 5] = [
    ("time_both", "time, beside fileread"),
    ("fileread_both", "fileread, beside time"),
    ("both", "both, from the beginning to the end"),
    ("system_both", "system time: kernel and servers"),
    ("user_both", "user time"),
];

/// A chart for each metric and each number of cores; none if the load was not run.
pub fn bars(bench: &str, rows: &Rows) -> Result<Vec<Plot>, String> {
    let rows = rows.rows();
    let mut plots = Vec::new();
    for (metric, title) in METRICS {
        let of: Vec<&Row> = rows
            .iter()
            .filter(|r| {
                r.identity.metric == metric && !r.notes.contains_key("is") && bench == "servers"
            })
            .collect();
        let mut cores: Vec<usize> = of.iter().map(|r| r.identity.vps).collect();
        cores.sort_unstable();
        cores.dedup();
        for cores in cores {
            let name = format!("{bench}-bars-{metric}-cores-{cores}.svg");
            let bars: Vec<_> = of.iter().copied().filter(|r| r.identity.vps == cores).collect();
            let svg = draw(&format!("{title} (ms), cores={cores}"), &bars)
                .map_err(|e| format!("{name}: {e}"))?;
            plots.push(Plot { name, svg });
        }
    }
    Ok(plots)
}

/// Draws bars for the medians, and lines from minimum to maximum.
fn draw(title: &str, rows: &[&Row]) -> Result<String, Box<dyn std::error::Error>> {
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        root.draw(&Text::new(title.to_owned(), (NAMES, 18), ("sans-serif", 18)))?;
        let longest = rows.iter().map(|row| row.summary.max).fold(f64::MIN_POSITIVE, f64::max);
        let room = f64::from(SIZE.0 as i32 - NAMES - NUMBERS);
        let x = |value: f64| NAMES + (room * value / longest).round() as i32;
        let each = (SIZE.1 as i32 - TOP - BOTTOM) / rows.len().max(1) as i32;
        let mut colours: Vec<&str> = Vec::new();
        for (i, row) in rows.iter().enumerate() {
            let key = |key: &str| row.identity.keys.get(key).map_or("", String::as_str);
            let organisation = key("organisation");
            // An organisation has the same colour with every assignment of threads.
            let colour =
                colours.iter().position(|other| *other == organisation).unwrap_or_else(|| {
                    colours.push(organisation);
                    colours.len() - 1
                });
            let (top, height) = (TOP + each * i as i32, (each * 3 / 4).max(1));
            let middle = top + height / 2;
            let name = match key("threads") {
                "1" => organisation.to_owned(),
                threads => format!("{organisation}, {threads}"),
            };
            root.draw(&Text::new(name, (8, middle - 7), ("sans-serif", 14)))?;
            let bar = [(NAMES, top), (x(row.summary.median), top + height)];
            root.draw(&Rectangle::new(bar, COLOURS[(colour + 1) % COLOURS.len()].filled()))?;
            root.draw(&PathElement::new(
                vec![(x(row.summary.min), middle), (x(row.summary.max), middle)],
                BLACK,
            ))?;
            let number = table::number(row.summary.median);
            root.draw(&Text::new(
                number,
                (x(row.summary.max) + 8, middle - 7),
                ("sans-serif", 14),
            ))?;
        }
        root.present()?;
    }
    Ok(svg)
}

#[cfg(test)]
mod tests {
    use super::super::row::Sample;
    use super::super::row::tests::from;
    use super::*;

    #[test]
    fn chart_per_number_of_cores_has_a_bar_per_organisation() {
        let mut rows = Rows::default();
        for (line, cores) in [
            ("time_both 100 ms organisation=sequential threads=1", 1),
            ("time_both 30 ms organisation=kernel-threads threads=pool", 1),
            ("time_both 30 ms organisation=best-other threads=- is:=kernel-threads", 1),
            ("time_both 90 ms organisation=sequential threads=1", 2),
        ] {
            rows.add(Sample::parse(line, &from("servers", "kumihimo", cores)).unwrap()).unwrap();
        }
        let plots = bars("servers", &rows).unwrap();
        let names: Vec<_> = plots.iter().map(|plot| plot.name.as_str()).collect();
        assert_eq!(
            names,
            ["servers-bars-time_both-cores-1.svg", "servers-bars-time_both-cores-2.svg"]
        );
        assert!(
            plots[0].svg.contains("kernel-threads, pool") && !plots[0].svg.contains("best-other")
        );
        assert!(bars("echo", &rows).unwrap().is_empty());
    }
}
