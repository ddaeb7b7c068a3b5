//! Rows of `kumi top` as lines.

use kumihimo_machine::handler::{Resource, State};
use kumihimo_machine::top::{TopGroup, TopGrouping, TopRow, TopSort};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};

use super::super::cells::{bytes, indent, percent, rate};
use super::super::keys::first_frame;
use super::super::known::{Item, Known};
use super::super::model::{Model, Row};
use super::columns::{self, GROUP, SPACE, USED, pad};
use crate::show::ps::{self, STATES};
use crate::text::{Doing, Name, Plain, duration, short};

/// Formats a row for a screen of some width.
pub fn row(model: &Model, row: Row, width: u16) -> Line<'static> {
    match row {
        Row::Space(at) => space(&model.known[at]),
        Row::Summary(at) => summary(model, &model.known[at]),
        Row::Item(space, at) => match model.item(space, at) {
            Item::Microprocess(row) => microprocess(row, width, model.settings.sort),
            Item::Group(one) => group(one, model.known[space].answered_grouping()),
            Item::Resource(one) => resource(one),
            Item::Unknown => Line::raw("  ..."),
        },
    }
}

fn space(known: &Known) -> Line<'static> {
    let mark = if known.is_unfolded() { '-' } else { '+' };
    let number = format!("{mark} {}", known.number);
    let mut line = String::new();
    if let Some(space) = &known.space {
        let program = space.program.rsplit('/').next().unwrap_or_default();
        let rates = &known.rates;
        let cells = [
            number,
            Plain(program).to_string(),
            space.pid.to_string(),
            space.vps.to_string(),
            rates.cpu.map_or_else(|| "-".to_owned(), |cores| format!("{:.0}%", cores * 100.0)),
            space.living.to_string(),
            rate(rates.switches),
            rate(rates.spawned),
            rate(rates.batches),
        ];
        for (cell, (_, width)) in cells.iter().zip(SPACE) {
            pad(&mut line, cell, width);
        }
    } else {
        pad(&mut line, &number, SPACE[0].1);
    }
    if let Some(why) = &known.trouble {
        // The reason replaces the row's other cells.
        let mut said = String::new();
        pad(&mut said, &line, SPACE[0].1 + SPACE[1].1);
        return Line::from(vec![Span::raw(said).bold(), Span::raw(Plain(why).to_string()).red()]);
    }
    let mut line = Line::from(Span::raw(line).bold());
    let wrong = wrongs(known);
    if !wrong.is_empty() {
        line.push_span(Span::raw(wrong).red());
    }
    line
}

/// Problems of an address space, for the last column.
fn wrongs(known: &Known) -> String {
    let all = [(known.rates.misbehaved, "misbehaved"), (known.rates.refused, "refused")];
    let some = all.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}"));
    some.collect::<Vec<_>>().join(", ")
}

fn summary(model: &Model, known: &Known) -> Line<'static> {
    let mut parts: Vec<String> = Vec::new();
    if model.settings.usage {
        parts.push(format!("{} resources", known.len(true)));
    } else {
        let titles = known.levels.iter().map(|level| Plain(&level.title).to_string());
        parts.extend(titles.map(|title| format!("in {title} (Esc leaves)")));
        parts.extend(known.answer.iter().flat_map(|(_, answer)| totals(model, known, answer)));
    }
    let by_vp =
        known.rates.by_vp.iter().map(|(vp, n)| format!("VP {} {}/s", Plain(vp), rate(Some(*n))));
    parts.extend(by_vp);
    let threads = known.space.as_ref().and_then(ps::kernel_threads);
    parts.extend(threads.map(|threads| format!("{threads} kernel threads")));
    if let Some(there) = known.space.as_ref().and_then(|space| model.at_board(space.pid)) {
        parts.extend(there.share.map(|share| format!("share {share}")));
        match there.sunk {
            0 => {}
            1 => parts.push("1 level down".to_owned()),
            n => parts.push(format!("{n} levels down")),
        }
    }
    let mut line = Line::raw(format!("  {}", parts.join(", "))).italic();
    let wrong = wrongs(known);
    if !wrong.is_empty() {
        line.push_span(Span::raw(format!("  {wrong}")).red());
    }
    line
}

/// Totals over the microprocesses that are shown, as parts of the summary.
fn totals(model: &Model, known: &Known, answer: &super::super::answer::Answer) -> Vec<String> {
    let totals = &answer.totals;
    let mut parts = Vec::new();
    let grouping = known.grouping(model.settings.group);
    if answer.has_counters && grouping != TopGrouping::None {
        parts.push(format!("{} groups", totals.groups));
    }
    if answer.has_counters && grouping == TopGrouping::Stack && totals.stacks < totals.matching {
        parts.push(format!("{} of {} stacks examined", totals.stacks, totals.matching));
    }
    if totals.matching != totals.living {
        parts.push(format!("{} match", totals.matching));
    }
    let states = STATES.iter().zip(totals.states).filter(|(_, n)| *n > 0);
    parts.extend(states.map(|(state, n)| format!("{n} {state}")));
    if totals.exact {
        parts.push("exact".to_owned());
    }
    if !answer.has_counters && totals.living > 0 {
        let version = known.space.as_ref().map_or("", |space| space.version.as_str());
        let groups = if grouping == TopGrouping::None { "" } else { " and no groups" };
        parts.push(format!("no counters{groups} in Kumihimo {}", Name(version)));
    }
    parts
}

fn microprocess(row: &TopRow, width: u16, sort: TopSort) -> Line<'static> {
    let one = &row.microprocess;
    let unknown = || "-".to_owned();
    let mut line = "  ".to_owned();
    for (column, width) in columns::of_microprocesses(width, sort) {
        let cell = match column.sort {
            TopSort::Id => short(one.id).to_string(),
            TopSort::Name => Name(one.name.as_deref().unwrap_or("-")).to_string(),
            TopSort::Cpu => percent(row.cpu),
            TopSort::State if one.stopping => "stopping".to_owned(),
            TopSort::State => one.state.to_string(),
            TopSort::Priority => match one.inherited {
                Some(lent) => format!("{}+{lent}", one.priority),
                None => one.priority.to_string(),
            },
            TopSort::Vp => one.vp.to_string(),
            TopSort::Switches => rate(row.switch_rate),
            TopSort::Stack => row.stack_bytes.map_or_else(unknown, bytes),
            TopSort::WaitTime => row.waiting_ns.map_or_else(unknown, duration),
            TopSort::WaitsFor => {
                let what = one.waits_for.as_deref().or(one.sticky.as_deref());
                Plain(what.unwrap_or_default()).to_string()
            }
        };
        pad(&mut line, &cell, width);
    }
    let style = match one.state {
        _ if one.stopping => Style::new().fg(Color::Magenta),
        State::Running => Style::new().fg(Color::Green),
        State::Suspended => Style::new().fg(Color::Yellow),
        State::Blocked => Style::new().fg(Color::Cyan),
        State::Runnable | State::Waiting => Style::new(),
    };
    Line::styled(line, style)
}

fn group(one: &TopGroup, by: TopGrouping) -> Line<'static> {
    let what = match by {
        TopGrouping::Stack => Plain(&first_frame(&one.what)).to_string(),
        _ if one.what.is_empty() => "-".to_owned(),
        // The groups above it have the beginning of the name.
        TopGrouping::Tree if one.depth > 0 => {
            let last = one.what.rsplit('/').next().unwrap_or_default();
            format!("{:indent$}{}", "", Plain(last), indent = indent(one.depth))
        }
        _ => Plain(&one.what).to_string(),
    };
    let cells = [one.count.to_string(), percent(one.cpu), duration(one.waiting_ns), what];
    let mut line = "  ".to_owned();
    for (cell, (_, width)) in cells.iter().zip(GROUP) {
        pad(&mut line, cell, width);
    }
    Line::raw(line)
}

fn resource(one: &Resource) -> Line<'static> {
    let owner = one.owner.map_or_else(|| "-".to_owned(), |owner| short(owner).to_string());
    let names = one.names.iter().map(|name| Plain(name).to_string()).collect::<Vec<_>>().join(" ");
    let cells = [
        one.id.kind().to_string(),
        one.id.serial().to_string(),
        owner,
        Doing(&one.state).to_string(),
        names,
    ];
    let mut line = "  ".to_owned();
    for (cell, (_, width)) in cells.iter().zip(USED) {
        pad(&mut line, cell, width);
    }
    Line::raw(line)
}
