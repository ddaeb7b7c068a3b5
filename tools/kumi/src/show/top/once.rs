//! `kumi top --once` and `--json`: one screen as text, or as one JSON object a line.

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use kumihimo_machine::client::Neighbour;
use kumihimo_machine::handler::Space;
use kumihimo_machine::top::{TopGroup, TopGrouping, TopItem, TopQuery, TopRow, TopTotals};
use serde::Serialize;

use super::answer::Answer;
use super::cells;
use super::histogram;
use super::options::Shown;
use crate::ask::machines::{Found, FullId, Label, Labelled, Where};
use crate::ask::{self, Place, Trouble};
use crate::show::ps::{self, STATES};
use crate::text::{Name, Plain, code, duration, json_line, put, table, written};

/// Time between the two queries from which the rates are computed.
const INTERVAL: Duration = Duration::from_millis(100);

/// The answer of one address space.
struct Seen {
    /// Its machine, if one was named.
    label: Option<Label>,
    space: Space,
    answer: Answer,
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

/// Returns a number for the queries of this process.
pub fn session() -> u64 {
    u64::from(std::process::id()) << 32
        | u64::from(std::time::UNIX_EPOCH.elapsed().map_or(0, |time| time.subsec_nanos()))
}

/// Prints one screen. Exit code 1 if some address space did not answer.
pub fn run(args: &Shown, on: &Where) -> Result<ExitCode, String> {
    let (found, mut whole) = on.spaces(&args.spaces)?;
    let session = session();
    let asked = ask::each(found, |Found { label, place, neighbour }| {
        look(neighbour, *place, session, args).map(|seen| Seen { label: label.clone(), ..seen })
    });
    let (seen, have_all_answered) = ask::answers(asked);
    whole &= have_all_answered;
    if seen.is_empty() && args.spaces.is_empty() && whole {
        ask::complain_of_none();
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
        sort: args.sort().unwrap_or_default(),
        backwards: args.reverse,
        group_sort: args.group_sort().unwrap_or_default(),
        filter: args.filter.clone(),
        group: args.group().unwrap_or_default(),
        limit: args.limit(),
        // An older version keeps no record of sessions: left on if it was on before.
        exact: (args.exact && !was_exact(&before)).then_some(false),
        ..TopQuery::default()
    };
    Ok(Seen { label: None, space, answer: Answer::of(neighbour.top(&query)?) })
}

/// Whether the accounting was exact before the query that the items answer.
fn was_exact(items: &[TopItem]) -> bool {
    items.iter().any(|item| matches!(item, TopItem::Totals(totals) if totals.was_exact))
}

fn show(out: &mut impl Write, seen: &[Seen], args: &Shown) -> io::Result<()> {
    for (nth, Seen { label, space, answer }) in seen.iter().enumerate() {
        let label = label.as_ref();
        if args.json {
            let mut line = |line: &Line<'_>| json_line(out, &Labelled::new(label, line));
            line(&Line::Space { space, totals: &answer.totals })?;
            let number = space.id.location().space();
            for row in &answer.rows {
                line(&Line::Microprocess(row))?;
            }
            for group in &answer.groups {
                line(&Line::Group { space: number, group })?;
            }
            continue;
        }
        if nth > 0 {
            writeln!(out)?;
        }
        ps::show_space(out, label, space, &[])?;
        writeln!(out, "{}", summary(&answer.totals))?;
        if args.histograms {
            let lines = histogram::lines(&answer.totals.vps);
            lines.iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        match args.group().unwrap_or_default() {
            TopGrouping::None if answer.rows.is_empty() => {}
            TopGrouping::None => show_rows(out, label, &answer.rows)?,
            TopGrouping::Stack => show_stacks(out, &answer.groups)?,
            TopGrouping::Name | TopGrouping::Tree | TopGrouping::WaitsFor => {
                show_groups(out, &answer.groups)?;
            }
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
    let unit = if cores.is_some() { "%" } else { "" };
    format!("{}{unit}", cells::percent(cores))
}

fn rate(rate: Option<f64>) -> String {
    rate.map_or_else(|| "-".to_owned(), |rate| format!("{rate:.0}"))
}

fn show_rows(out: &mut impl Write, label: Option<&Label>, rows: &[TopRow]) -> io::Result<()> {
    let heads =
        ["ID", "NAME", "CPU", "STATE", "PRIORITY", "VP", "SWITCH/s", "STACK", "FOR", "WAITS-FOR"];
    table(out, heads, rows, |row, column, cell| {
        let one = &row.microprocess;
        match column {
            0 => put(cell, FullId(label, one.id)),
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
        _ => {
            let indent = cells::indent(group.depth);
            put(cell, format_args!("{:indent$}{}", "", Plain(&group.what)));
        }
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
        show_rows(&mut out, None, &[one, unknown]).expect("memory");
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
            depth: 0,
            stack: None,
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
