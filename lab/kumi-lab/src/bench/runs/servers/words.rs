//! Discussion of P1's open question in text and tables with this run's numbers, beside the paper's
//! findings.

use crate::bench::plan::ORGANISATIONS;
use crate::bench::report::Note;
use crate::bench::report::row::Row;
use crate::bench::report::table::number;

/// A ratio below this counts as equal, because equal runs on a shared machine differ as well.
const SAME: f64 = 1.1;

/// The paper's findings for each organisation under its first load (section 6.2.1), and for those
/// that it could not implement (6.2.2, 7).
const PAPER: [(&str, &str); 5] = [
    ("sequential", "MINIX's FS, the baseline"),
    ("user-threads", "MTFS: as the baseline, one blocking read stops all"),
    ("processes", "MPFS: the best, TIME does not wait for the disk"),
    ("kernel-threads", "not built; would be better than user-level threads"),
    ("microprocesses", "not built: the open problem"),
];

/// The paper's findings under its second load (6.2.2).
const PAPER_COMMANDS: [(&str, &str); 5] = [
    ("date", "no difference"),
    ("ls", "not discussed"),
    ("make", "MPFS much shorter"),
    ("pwd", "not discussed"),
    ("whoami", "no difference"),
];

/// All notes; none if P1's first load was not run.
pub fn notes(rows: &[Row]) -> Vec<Note> {
    let seen = Seen(rows);
    let mut notes = Vec::new();
    for cores in seen.cores() {
        if let Some(table) = seen.first_load(cores) {
            notes.push(Note::Text(seen.answer(cores)));
            notes.push(table);
        }
    }
    if notes.is_empty() {
        return notes;
    }
    for cores in seen.cores() {
        notes.extend(seen.second_load(cores));
    }
    notes.push(Note::Text(
        "Costs that the paper could not measure: the transfer of a request and its reply (communication), the memory and kernel threads of a server under \
         load (resources), and, as `processes` over `sequential`, separate address spaces for clock and files (protection)."
            .to_owned(),
    ));
    notes.extend(seen.cores().into_iter().filter_map(|cores| seen.unmeasured(cores)));
    notes.extend(seen.slow().map(Note::Text));
    notes
}

struct Seen<'a>(&'a [Row]);

/// Default threads of an organisation.
fn threads(organisation: &str) -> &'static str {
    match organisation {
        "sequential" | "processes" => "1",
        _ => "pool",
    }
}

/// A speed-up in words.
fn faster(ratio: f64) -> String {
    match ratio {
        r if r >= SAME => format!("{r:.1} times faster"),
        r if r <= 1.0 / SAME => format!("{:.1} times slower", 1.0 / r),
        _ => "as fast".to_owned(),
    }
}

fn holds(yes: bool) -> &'static str {
    if yes { "holds" } else { "does not hold" }
}

fn strings(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

impl Seen<'_> {
    fn cores(&self) -> Vec<usize> {
        let mut all: Vec<usize> = self.0.iter().map(|row| row.identity.vps).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    fn row(&self, metric: &str, cores: usize, keys: &[(&str, &str)]) -> Option<&Row> {
        let says = |row: &Row, (key, value): &(&str, &str)| {
            row.identity.keys.get(*key).is_some_and(|said| said == value)
        };
        self.0.iter().find(|row| {
            row.identity.metric == metric
                && row.identity.vps == cores
                && keys.iter().all(|key| says(row, key))
        })
    }

    /// The median under one of P1's loads, with default threads.
    fn paper(&self, load: &str, metric: &str, cores: usize, organisation: &str) -> Option<f64> {
        let keys =
            [("load", load), ("organisation", organisation), ("threads", threads(organisation))];
        self.row(metric, cores, &keys).map(|row| row.summary.median)
    }

    fn time(&self, cores: usize, organisation: &str) -> Option<f64> {
        self.paper("paper", "time_both", cores, organisation)
    }

    /// Speed-up relative to the sequential organisation, by medians.
    fn ratio(&self, cores: usize, organisation: &str) -> Option<f64> {
        Some(self.time(cores, "sequential")? / self.time(cores, organisation)?)
    }

    /// The organisation with the minimum (or maximum) of a metric.
    fn least(&self, metric: &str, cores: usize) -> Vec<(&'static str, f64)> {
        let of = |&organisation: &&'static str| {
            Some((organisation, self.paper("paper", metric, cores, organisation)?))
        };
        let mut all: Vec<_> = ORGANISATIONS.iter().filter_map(of).collect();
        all.sort_by(|a, b| a.1.total_cmp(&b.1));
        all
    }

    /// The question, and this run's answer.
    fn answer(&self, cores: usize) -> String {
        let mut text = format!(
            "The question of P1, on {cores} {}: which organisation of a system server is best, if kernel threads and threads managed by user and kernel code \
             together are included?",
            if cores == 1 { "core" } else { "cores" }
        );
        let fastest = self.least("time_both", cores);
        if let Some((winner, _)) = fastest.first() {
            let ratio = self
                .ratio(cores, winner)
                .map_or(String::new(), |r| format!(", {} than sequential", faster(r)));
            text +=
                &format!(" Replies to `time` during `fileread` are fastest in {winner}{ratio}.");
        }
        if let Some(r) = self.ratio(cores, "processes") {
            text += &format!(
                " Processes: {}; the paper's conclusion that they are faster because input overlaps with other work {}.",
                faster(r),
                holds(r >= SAME)
            );
        }
        if let Some(r) = self.ratio(cores, "user-threads") {
            text += &format!(
                " User-level threads: {}; the paper's conclusion that they are no faster than one sequential process {}.",
                faster(r),
                holds(r < SAME)
            );
        }
        for (organisation, what) in [
            ("kernel-threads", "Kernel threads, which the paper expects to be faster"),
            ("microprocesses", "Microprocesses, user-level threads with support from the kernel"),
        ] {
            if let Some(r) = self.ratio(cores, organisation) {
                text += &format!(" {what}: {}", faster(r));
                if let (Some(mpfs), Some(own)) =
                    (self.time(cores, "processes"), self.time(cores, organisation))
                {
                    text += &format!(", and {} compared with processes", faster(mpfs / own));
                }
                text.push('.');
            }
        }
        text + &self.costs(cores)
    }

    /// System and user time: the paper finds the longest system time in MPFS, because of context
    /// switches, and equal user times.
    fn costs(&self, cores: usize) -> String {
        let mut text = String::new();
        if let Some((most, ms)) = self.least("system_both", cores).last() {
            let switches = self.least("switches_both", cores);
            let switching = switches.last().map_or("", |(organisation, _)| organisation);
            text += &format!(
                " The longest system time is in {most} ({} ms), and most switches are in {switching}. The paper's result that both are in processes {}.",
                number(*ms),
                holds(*most == "processes" && switching == "processes")
            );
        }
        let user = self.least("user_both", cores);
        if let (Some((_, least)), Some((_, most))) = (user.first(), user.last()) {
            text += &format!(
                " User time: {} to {} ms (the paper: no difference).",
                number(*least),
                number(*most)
            );
        }
        text
    }

    fn first_load(&self, cores: usize) -> Option<Note> {
        let all = self.0.iter().filter(|row| {
            row.identity.metric == "time_both"
                && row.identity.vps == cores
                && !row.notes.contains_key("is")
        });
        let cells = |row: &Row| {
            let said = |key: &str| row.identity.keys.get(key).map_or("", String::as_str);
            let (organisation, allotted) = (said("organisation"), said("threads"));
            let keys = [("load", "paper"), ("organisation", organisation), ("threads", allotted)];
            let median = |metric| {
                self.row(metric, cores, &keys)
                    .map_or("-".to_owned(), |row| number(row.summary.median))
            };
            let spread = format!("{} to {}", number(row.summary.min), number(row.summary.max));
            let mean = number(row.values.iter().sum::<f64>() / row.values.len() as f64);
            let paper =
                PAPER.iter().find(|(name, _)| *name == organisation).map_or("", |(_, found)| found);
            [
                vec![
                    cores.to_string(),
                    organisation.to_owned(),
                    allotted.to_owned(),
                    median("time_alone"),
                    median("time_both"),
                ],
                vec![mean, spread, median("time_ratio_vs_sequential")],
                [
                    "fileread_alone",
                    "fileread_both",
                    "both",
                    "user_both",
                    "system_both",
                    "switches_both",
                ]
                .map(median)
                .to_vec(),
                vec![paper.to_owned()],
            ]
            .concat()
        };
        let body: Vec<_> = all.map(cells).collect();
        let head = [
            "cores",
            "organisation",
            "threads",
            "time alone ms",
            "time beside fileread ms",
            "mean",
            "spread",
            "times faster",
            "fileread alone ms",
            "fileread beside time ms",
            "both ms",
            "user ms",
            "system ms",
            "switches",
            "the paper found",
        ];
        if body.is_empty() { None } else { Some(Note::Table(strings(&head), body)) }
    }

    fn second_load(&self, cores: usize) -> Option<Note> {
        let cells = |(command, paper): &(&str, &str)| {
            let of = |organisation: &&str| self.paper("commands", command, cores, organisation);
            let times: Vec<Option<f64>> = ORGANISATIONS.iter().map(of).collect();
            if times.iter().all(Option::is_none) {
                return None;
            }
            let told = |time: &Option<f64>| match (time, times[0]) {
                (Some(us), Some(baseline)) => format!("{} ({:.2})", number(*us), us / baseline),
                (Some(us), None) => number(*us),
                (None, _) => "-".to_owned(),
            };
            let own = [cores.to_string(), (*command).to_owned()];
            Some(
                own.into_iter()
                    .chain(times.iter().map(told))
                    .chain([(*paper).to_owned()])
                    .collect(),
            )
        };
        let body: Vec<Vec<String>> = PAPER_COMMANDS.iter().filter_map(cells).collect();
        let head: Vec<String> = [
            strings(&["cores", "command, us (over sequential)"]),
            strings(&ORGANISATIONS),
            strings(&["the paper found"]),
        ]
        .concat();
        if body.is_empty() { None } else { Some(Note::Table(head, body)) }
    }

    fn unmeasured(&self, cores: usize) -> Option<Note> {
        let cells = |&organisation: &&str| {
            let paper = |metric| self.paper("paper", metric, cores, organisation);
            let one = |metric| {
                let keys = [
                    ("load", "modern"),
                    ("organisation", organisation),
                    ("store", "ext2"),
                    ("clients", "1"),
                ];
                self.row(metric, cores, &keys).map(|row| row.summary.median)
            };
            paper("null_request")?;
            let over =
                |metric| Some(paper(metric)? / self.paper("paper", metric, cores, "sequential")?);
            let told = |value: Option<f64>| value.map_or("-".to_owned(), number);
            let ratio =
                |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.2}"));
            Some(vec![
                cores.to_string(),
                organisation.to_owned(),
                told(paper("null_request")),
                told(self.paper("gate", "gate_request", cores, organisation)),
                told(one("stat_p50")),
                told(one("stat_cpu")),
                told(paper("kernel_threads")),
                told(paper("pss")),
                ratio(over("null_request")),
                ratio(over("system_both")),
                ratio(over("pss")),
            ])
        };
        let body: Vec<Vec<String>> = ORGANISATIONS.iter().filter_map(cells).collect();
        let head = [
            "cores",
            "organisation",
            "null request to the clock us",
            "null request to its gate us",
            "stat us",
            "server's CPU per stat us",
            "kernel threads",
            "memory MB (PSS)",
            "null request over sequential",
            "system time over sequential",
            "memory over sequential",
        ];
        if body.is_empty() { None } else { Some(Note::Table(strings(&head), body)) }
    }

    /// Effect of slow requests on others, for all contenders that were measured.
    fn slow(&self) -> Option<String> {
        let said = |row: &Row| {
            let keys: Vec<(&str, &str)> = row
                .identity
                .keys
                .iter()
                .map(|(key, value)| (key.as_str(), value.as_str()))
                .collect();
            let of = |metric| {
                self.row(metric, row.identity.vps, &keys)
                    .map_or("-".to_owned(), |row| number(row.summary.median))
            };
            format!(
                "{} ({}, cores={}, {} blocks each): p99 of the others {} us without and {} us with them, {} times; {} kernel threads (idle {}), {} slow reads per second",
                row.identity.keys.get("organisation").map_or("", String::as_str),
                row.identity.keys.get("threads").map_or("", String::as_str),
                row.identity.vps,
                row.identity.keys.get("blocks").map_or("", String::as_str),
                of("p99_without"),
                of("p99_with"),
                number(row.summary.median),
                of("kernel_threads"),
                of("kernel_threads_idle"),
                of("slow_reads"),
            )
        };
        let all: Vec<String> =
            self.0.iter().filter(|row| row.identity.metric == "p99_ratio").map(said).collect();
        if all.is_empty() {
            None
        } else {
            Some(format!("A thousand slow requests in progress: {}.", all.join("; ")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::report::row::tests::from;
    use crate::bench::report::row::{Rows, Sample};

    fn rows(lines: &[&str]) -> Vec<Row> {
        let mut rows = Rows::default();
        for line in lines {
            rows.add(Sample::parse(line, &from("servers", "kumihimo", 1)).unwrap()).unwrap();
        }
        rows.rows()
    }

    fn text(notes: &[Note]) -> String {
        let told = |note: &Note| match note {
            Note::Text(text) => text.clone(),
            Note::Table(head, body) => format!("{head:?} {body:?}"),
        };
        notes.iter().map(told).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn notes_contain_the_measured_numbers() {
        let said = text(&notes(&rows(&[
            "time_both 1000 ms load=paper organisation=sequential threads=1",
            "time_both 980 ms load=paper organisation=user-threads threads=pool",
            "time_both 300 ms load=paper organisation=processes threads=1",
            "time_both 250 ms load=paper organisation=microprocesses threads=pool",
            "null_request 20 us load=paper organisation=sequential threads=1",
            "null_request 30 us load=paper organisation=processes threads=1",
            "system_both 500 ms load=paper organisation=processes threads=1",
            "switches_both 9 1 load=paper organisation=sequential threads=1",
            "make 10 us load=commands organisation=sequential threads=1",
            "make 5 us load=commands organisation=processes threads=1",
            "p99_ratio 1.2 ratio load=slow organisation=microprocesses threads=pool blocks=8",
            "kernel_threads 12 1 load=slow organisation=microprocesses threads=pool blocks=8",
        ])));
        for words in [
            "during `fileread` are fastest in microprocesses, 4.0 times faster than sequential",
            "Processes: 3.3 times faster; the paper's conclusion that they are faster because input overlaps with other work holds",
            "the paper's conclusion that they are no faster than one sequential process holds",
            "1.2 times faster compared with processes",
            "The longest system time is in processes (500 ms), and most switches are in sequential. The paper's result that both are in processes does not hold",
            "\"5.00 (0.50)\"",
            "\"1.50\"",
            "1.20 times; 12.0 kernel threads",
        ] {
            assert!(said.contains(words), "{words}: {said}");
        }
        let other = text(&notes(&rows(&[
            "time_both 1000 ms load=paper organisation=sequential threads=1",
            "time_both 2000 ms load=paper organisation=processes threads=1",
        ])));
        assert!(
            other.contains("Processes: 2.0 times slower") && other.contains("does not hold"),
            "{other}"
        );
    }

    #[test]
    fn notes_without_the_papers_load_are_empty() {
        assert!(notes(&rows(&["stat 1 1/s load=modern clients=1"])).is_empty());
    }
}
