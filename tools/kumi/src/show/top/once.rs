//! `kumi top --once` and `--json`: one screen as text, or as one JSON object a line.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::ValueEnum;
use kumihimo_machine::client::Neighbour;
use kumihimo_machine::handler::Space;
use kumihimo_machine::top::{
    MOST_ROWS, TopGroup, TopGrouping, TopItem, TopQuery, TopRow, TopSort, TopTotals, TopVp,
};
use serde::Serialize;

use crate::ask::{self, Place, Trouble, Whose};
use crate::show::ps::{self, STATES};
use crate::text::{Name, Plain, code, duration, json_line, put, short, table, written};

/// Time between the two queries from which the rates are computed.
const INTERVAL: Duration = Duration::from_millis(100);

/// Selection and order of the rows.
#[derive(clap::Args)]
pub struct Shown {
    /// Address spaces (12) or process IDs; all of the user's by default
    #[arg(value_name = "SPACE|PID")]
    spaces: Vec<Place>,
    /// Print one screen as text and end
    #[arg(long)]
    pub once: bool,
    /// Print one screen as one JSON object a line and end
    #[arg(long)]
    pub json: bool,
    /// Sort key; numbers sort from the highest down
    #[arg(long, value_name = "KEY", default_value = "cpu")]
    sort: Sort,
    /// Reverse the order
    #[arg(long)]
    reverse: bool,
    /// Show only microprocesses whose ID, name, state or wait contains this text
    #[arg(long, value_name = "TEXT", default_value = "")]
    filter: String,
    /// Show groups in place of microprocesses
    #[arg(long, value_name = "BY")]
    group: Option<Grouping>,
    /// Number of rows of each address space
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_ROWS)))]
    limit: u32,
    /// Show histograms of the wake-up latency and the run-queue length of each virtual processor
    #[arg(long)]
    histograms: bool,
    /// Account CPU time exactly meanwhile: each switch of the programs reads the clock
    #[arg(long)]
    exact: bool,
}

impl Shown {
    /// Whether a screen is printed, rather than shown live.
    pub fn is_printed(&self) -> bool {
        self.once || self.json
    }

    /// Returns an error if an option has no effect on the live screen.
    pub fn check_live(&self) -> Result<(), String> {
        let printed_only = !self.spaces.is_empty()
            || self.sort != Sort::Cpu
            || self.reverse
            || !self.filter.is_empty()
            || self.group.is_some()
            || self.limit != 20
            || self.histograms
            || self.exact;
        if printed_only {
            return Err("these options need --once or --json; in the live screen, use its keys (? explains them)".to_owned());
        }
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sort {
    Cpu,
    Id,
    Name,
    State,
    Priority,
    Vp,
    WaitsFor,
    WaitTime,
    Switches,
    Stack,
}

impl From<Sort> for TopSort {
    fn from(sort: Sort) -> TopSort {
        match sort {
            Sort::Cpu => TopSort::Cpu,
            Sort::Id => TopSort::Id,
            Sort::Name => TopSort::Name,
            Sort::State => TopSort::State,
            Sort::Priority => TopSort::Priority,
            Sort::Vp => TopSort::Vp,
            Sort::WaitsFor => TopSort::WaitsFor,
            Sort::WaitTime => TopSort::WaitTime,
            Sort::Switches => TopSort::Switches,
            Sort::Stack => TopSort::Stack,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Grouping {
    /// By the object of the wait
    WaitsFor,
    /// By the name without the number at its end
    Name,
    /// By stack
    Stack,
}

impl From<Grouping> for TopGrouping {
    fn from(grouping: Grouping) -> TopGrouping {
        match grouping {
            Grouping::WaitsFor => TopGrouping::WaitsFor,
            Grouping::Name => TopGrouping::Name,
            Grouping::Stack => TopGrouping::Stack,
        }
    }
}

/// The answer of one address space.
struct Seen {
    space: Space,
    totals: TopTotals,
    rows: Vec<TopRow>,
    groups: Vec<TopGroup>,
}

/// A line of `--json`.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Line<'a> {
    Space {
        #[serde(flatten)]
        space: &'a Space,
        #[serde(flatten)]
        totals: &'a TopTotals,
    },
    Microprocess(&'a TopRow),
    Group {
        space: u16,
        #[serde(flatten)]
        group: &'a TopGroup,
    },
}

/// Prints one screen. Exit code 1 if some address space did not answer.
pub fn run(args: &Shown, whose: &Whose) -> Result<ExitCode, String> {
    let machine = whose.machine()?;
    let (found, mut whole) = ask::neighbours(&machine, &args.spaces)?;
    let session = u64::from(std::process::id()) << 32
        | u64::from(std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.subsec_nanos()));
    let asked = ask::each(found, |(place, neighbour)| look(neighbour, *place, session, args));
    let mut seen = Vec::new();
    for (_, answer) in asked {
        match answer {
            Ok(answer) => seen.push(answer),
            Err(trouble) => {
                ask::complain(&trouble);
                whole = false;
            }
        }
    }
    if seen.is_empty() && args.spaces.is_empty() && whole {
        eprintln!(
            "kumi: no address space of yours runs: one joins when a program starts its first microprocess"
        );
    }
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    written(show(&mut out, &seen, args).and_then(|()| out.flush()).map(|()| code(whole)))
}

fn look(
    neighbour: &mut Neighbour,
    place: Place,
    session: u64,
    args: &Shown,
) -> Result<Seen, Trouble> {
    let space = ask::space_at(neighbour, place)?;
    let first =
        TopQuery { session, limit: 0, exact: args.exact.then_some(true), ..TopQuery::default() };
    let before = neighbour.top(&first)?;
    thread::sleep(INTERVAL);
    let query = TopQuery {
        session,
        sort: args.sort.into(),
        backwards: args.reverse,
        filter: args.filter.clone(),
        group: args.group.map_or(TopGrouping::None, TopGrouping::from),
        limit: args.limit,
        // Left on if it was on before.
        exact: (args.exact && !was_exact(&before)).then_some(false),
        ..TopQuery::default()
    };
    let mut seen =
        Seen { space, totals: TopTotals::default(), rows: Vec::new(), groups: Vec::new() };
    for item in neighbour.top(&query)? {
        match item {
            TopItem::Totals(totals) => seen.totals = totals,
            TopItem::Row(row) => seen.rows.push(*row),
            TopItem::Group(group) => seen.groups.push(group),
        }
    }
    Ok(seen)
}

/// Whether the accounting was exact before the query that the items answer.
fn was_exact(items: &[TopItem]) -> bool {
    items.iter().any(|item| matches!(item, TopItem::Totals(totals) if totals.was_exact))
}

fn show(out: &mut impl Write, seen: &[Seen], args: &Shown) -> io::Result<()> {
    for (nth, seen) in seen.iter().enumerate() {
        if args.json {
            json_line(out, &Line::Space { space: &seen.space, totals: &seen.totals })?;
            let space = seen.space.id.location().space();
            for row in &seen.rows {
                json_line(out, &Line::Microprocess(row))?;
            }
            for group in &seen.groups {
                json_line(out, &Line::Group { space, group })?;
            }
            continue;
        }
        if nth > 0 {
            writeln!(out)?;
        }
        ps::show_space(out, &seen.space, &[])?;
        writeln!(out, "{}", summary(&seen.totals))?;
        if args.histograms {
            show_histograms(out, &seen.totals.vps)?;
        }
        match args.group {
            None if seen.rows.is_empty() => {}
            None => show_rows(out, &seen.rows)?,
            Some(Grouping::Stack) => show_stacks(out, &seen.groups)?,
            Some(_) => show_groups(out, &seen.groups)?,
        }
    }
    Ok(())
}

/// States, CPU time and switches in one line.
fn summary(totals: &TopTotals) -> String {
    let mut parts: Vec<String> = Vec::new();
    if totals.matching != totals.living {
        parts.push(format!("{} match", totals.matching));
    }
    let states = STATES.iter().zip(totals.states).filter(|(_, n)| *n > 0);
    parts.extend(states.map(|(state, n)| format!("{n} {state}")));
    let how = if totals.exact { " (exact)" } else { "" };
    parts.push(format!("CPU {}{how}", percent(totals.cpu)));
    parts.push(format!("{} switches/s", rate(totals.switch_rate)));
    parts.join(", ")
}

fn percent(cores: Option<f64>) -> String {
    cores.map_or_else(|| "-".to_owned(), |cores| format!("{:.1}%", cores * 100.0))
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"))
}

fn show_rows(out: &mut impl Write, rows: &[TopRow]) -> io::Result<()> {
    let heads =
        ["ID", "NAME", "CPU", "STATE", "PRIORITY", "VP", "SWITCH/s", "STACK", "FOR", "WAITS-FOR"];
    table(out, heads, rows, |row, column, cell| {
        let one = &row.microprocess;
        match column {
            0 => put(cell, short(one.id)),
            1 => put(cell, Name(one.name.as_deref().unwrap_or("-"))),
            2 => cell.push_str(&percent(row.cpu)),
            3 => ps::microprocess(one, 2, cell),
            4 => ps::microprocess(one, 3, cell),
            5 => put(cell, one.vp),
            6 => cell.push_str(&rate(row.switch_rate)),
            7 => match row.stack_bytes {
                Some(bytes) => put(cell, bytes),
                None => cell.push('-'),
            },
            8 => match row.waiting_ns {
                Some(ns) => cell.push_str(&duration(ns)),
                None => cell.push('-'),
            },
            _ => ps::microprocess(one, 6, cell),
        }
    })
}

fn show_groups(out: &mut impl Write, groups: &[TopGroup]) -> io::Result<()> {
    table(out, ["COUNT", "CPU", "WAITED", "GROUP"], groups, |group, column, cell| match column {
        0 => put(cell, group.count),
        1 => cell.push_str(&percent(group.cpu)),
        2 => cell.push_str(&duration(group.waiting_ns)),
        _ if group.what.is_empty() => cell.push('-'),
        _ => put(cell, Plain(&group.what)),
    })
}

fn show_stacks(out: &mut impl Write, groups: &[TopGroup]) -> io::Result<()> {
    for group in groups {
        let (cpu, waited) = (percent(group.cpu), duration(group.waiting_ns));
        writeln!(out, "{} at this place, CPU {cpu}, waited {waited}", group.count)?;
        for line in group.what.lines() {
            writeln!(out, "{}", Plain(line))?;
        }
    }
    Ok(())
}

fn show_histograms(out: &mut impl Write, vps: &[TopVp]) -> io::Result<()> {
    for (vp, of) in vps.iter().enumerate() {
        writeln!(out, "VP {vp}: time from wake-up to run")?;
        show_histogram(out, &of.wake_latency, duration)?;
        writeln!(out, "VP {vp}: microprocesses in the run queue")?;
        show_histogram(out, &of.queue_lengths, |n| n.to_string())?;
    }
    Ok(())
}

/// Prints a bar for each bucket between the first and the last one that is not empty.
fn show_histogram(
    out: &mut impl Write,
    buckets: &[u64],
    label: impl Fn(u64) -> String,
) -> io::Result<()> {
    const WIDTH: u64 = 40;
    let (Some(first), Some(last)) =
        (buckets.iter().position(|n| *n > 0), buckets.iter().rposition(|n| *n > 0))
    else {
        return writeln!(out, "  none yet");
    };
    let most = buckets.iter().copied().max().unwrap_or(1).max(1);
    for (bucket, n) in buckets.iter().enumerate().take(last + 1).skip(first) {
        let bar = "#".repeat((n * WIDTH).div_ceil(most) as usize);
        writeln!(out, "  < {:>7} {n:>9} {bar}", label(1 << bucket))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use kumihimo_machine::handler::State;
    use kumihimo_machine::top::TopWaits;

    use super::*;

    fn row(id: &str) -> TopRow {
        TopRow {
            microprocess: ps::example(id, State::Waiting),
            cpu: Some(0.125),
            cpu_ns: 1,
            switch_rate: Some(1234.4),
            switches: 5,
            preemptions: 0,
            waiting_ns: Some(2_500_000),
            waits: vec![TopWaits { kind: "mutex".to_owned(), count: 3, ns: 9 }],
            wake_latency_ns: None,
            stack_bytes: Some(640),
        }
    }

    #[test]
    fn rows_have_their_columns() {
        let mut one = row("1.2.3");
        one.microprocess.waits_for = Some("the mutex at 0x10\x1b".to_owned());
        let mut unknown = row("1.4.1");
        (unknown.cpu, unknown.switch_rate) = (None, None);
        (unknown.waiting_ns, unknown.stack_bytes) = (None, None);
        let mut out = Vec::new();
        show_rows(&mut out, &[one, unknown]).expect("memory");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "ID     NAME  CPU    STATE    PRIORITY  VP  SWITCH/s  STACK  FOR    WAITS-FOR\n\
             1.2.3  -     12.5%  waiting  32        0   1234      640    2.5ms  the mutex at 0x10\\u{1b}\n\
             1.4.1  -     -      waiting  32        0   -         -      -\n"
        );
    }

    #[test]
    fn groups_are_printed() {
        let group = |what: &str, count| TopGroup {
            what: what.to_owned(),
            count,
            cpu: None,
            waiting_ns: 90 * 60_000_000_000,
        };
        let mut out = Vec::new();
        show_groups(&mut out, &[group("the clock", 2), group("", 1)]).expect("memory");
        show_stacks(&mut out, &[group("     0 f\n     1 g\n", 7)]).expect("memory");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "COUNT  CPU  WAITED  GROUP\n2      -    90m     the clock\n1      -    90m     -\n\
             7 at this place, CPU -, waited 90m\n     0 f\n     1 g\n"
        );
    }

    #[test]
    fn histogram_shows_the_buckets_in_use() {
        let mut out = Vec::new();
        let mut buckets = [0; 32];
        show_histogram(&mut out, &buckets, duration).expect("memory");
        (buckets[10], buckets[12]) = (40, 1);
        show_histogram(&mut out, &buckets, duration).expect("memory");
        let bar = "#".repeat(40);
        assert_eq!(
            String::from_utf8(out).expect("text"),
            format!(
                "  none yet\n  <   1.0us        40 {bar}\n  <   2.0us         0 \n  <   4.1us         1 #\n"
            )
        );
    }

    #[test]
    fn json_lines_have_a_stable_form() {
        let one = row("1.2.3");
        let json = serde_json::to_value(Line::Microprocess(&one)).expect("JSON");
        let mut keys: Vec<&String> =
            json["microprocess"].as_object().expect("an object").keys().collect();
        keys.sort();
        assert_eq!(
            keys,
            [
                "cpu",
                "cpu_ns",
                "id",
                "preemptions",
                "priority",
                "stack_bytes",
                "state",
                "switch_rate",
                "switches",
                "vp",
                "waiting_ns",
                "waits"
            ]
        );
        assert_eq!(json["microprocess"]["waits"][0]["kind"], "mutex");
        let back: TopRow = serde_json::from_value(json["microprocess"].clone()).expect("a row");
        assert_eq!(back, one);
    }
}
