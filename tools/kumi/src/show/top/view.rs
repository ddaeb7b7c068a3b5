//! Display of `kumi top`.

use kumihimo_machine::handler::{Microprocess, Resource, State};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use unicode_width::UnicodeWidthStr;

use super::model::{Known, Mode, Model, Row, SORTS};
use crate::show::board;
use crate::show::ps::{self, STATES};
use crate::text::{Doing, Plain, short};

/// Smallest supported size of the terminal.
const LEAST: (u16, u16) = (60, 10);

/// Number of lines for violations of the board's protocol.
const OFFENCES: usize = 3;

/// Columns of address spaces and of microprocesses. The last column takes the rest of the line.
const SPACE: [(&str, usize); 9] = [
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
const ONE: [(&str, usize); 7] = [
    ("ID", 17),
    ("NAME", 15),
    ("STATE", 11),
    ("PRI", 6),
    ("VP", 4),
    ("THREAD", 9),
    ("WAITS-FOR", 0),
];
const USED: [(&str, usize); 5] =
    [("KIND", 14), ("SERIAL", 16), ("OWNER", 17), ("STATE", 14), ("NAMES", 0)];

const KEYS: &str =
    "q end ? help / find <> sort Enter fold u used s suspend r resume c cancel +- pri";

const HELP: [&str; 19] = [
    "up down PgUp PgDn Home End   choose a row (also k j g G)",
    "Enter or space               fold or unfold an address space (left, right too)",
    "/                            filter by a text; Enter keeps it, Esc clears it",
    "< >                          sort microprocesses by another column; i backwards",
    "u                            the usage table: every kind of resource, and back",
    "s r                          suspend, resume the chosen microprocess",
    "c                            cancel it; y confirms",
    "+ -                          raise or lower its priority by one",
    "Ctrl-L, Ctrl-Z               redraw; stop, as a job of the shell",
    "q or Ctrl-C                  quit",
    "",
    "Each update queries every address space for its description and counters, and",
    "for its rows while some are on the screen. None is stopped. CPU: of one core;",
    "VPS virtual processors, LIVING microprocesses; rates are those since the last",
    "update. PRI is the own priority, 0 to 63, and after + the lent priority.",
    "THREAD is the kernel thread on which a microprocess runs or is blocked.",
    "Red: a recent violation of the board's protocol (see kumi board), a virtual",
    "processor that was overridden, or requests that were refused.",
    "any key returns",
];

/// Draws the whole screen.
pub fn draw(frame: &mut Frame, model: &mut Model) {
    let area = frame.area();
    if area.width < LEAST.0 || area.height < LEAST.1 {
        let said =
            format!("too small: {}x{}, {}x{} needed", area.width, area.height, LEAST.0, LEAST.1);
        frame.render_widget(Line::raw(said), area);
        return;
    }
    let bar = Constraint::Length(1);
    let wrong = offences(model);
    let [title, offences, spaces, columns, body, said, keys] = Layout::vertical([
        bar,
        Constraint::Length(wrong.len() as u16),
        bar,
        bar,
        Constraint::Min(1),
        bar,
        bar,
    ])
    .areas(area);
    model.fit(usize::from(body.height));
    frame.render_widget(head(model), title);
    lines(frame, offences, wrong);
    frame.render_widget(Line::raw(labels(&SPACE, "")).bold(), spaces);
    frame.render_widget(sorted_labels(model).bold(), columns);
    if model.mode == Mode::Help {
        lines(frame, body, HELP.iter().map(|text| Line::raw(*text)));
    } else if model.rows.is_empty() {
        lines(frame, body, [Line::raw(empty(model))]);
    } else {
        let shown = model.rows.iter().enumerate().skip(model.offset).take(usize::from(body.height));
        lines(
            frame,
            body,
            shown.map(|(at, row)| choose(row_line(model, *row), at == model.selected, body.width)),
        );
    }
    frame.render_widget(message(model), said);
    frame.render_widget(Line::raw(KEYS).style(Style::new().add_modifier(Modifier::REVERSED)), keys);
}

fn lines<'a>(frame: &mut Frame, area: Rect, all: impl IntoIterator<Item = Line<'a>>) {
    for (line, row) in all.into_iter().zip(area.rows()) {
        frame.render_widget(line, row);
    }
}

fn empty(model: &Model) -> &'static str {
    match (model.looked, model.filter.is_empty()) {
        (false, _) => "looking ...",
        (true, true) => {
            "no address space of yours runs: one joins when a program starts its first microprocess"
        }
        (true, false) => "no row contains the filter's text: Esc clears it",
    }
}

fn head(model: &Model) -> Line<'_> {
    let living: u64 =
        model.known.iter().filter_map(|known| Some(known.space.as_ref()?.living)).sum();
    let switches =
        model.known.iter().filter_map(|known| known.rates.switches).reduce(|all, one| all + one);
    let spaces = model.known.len();
    let mut line = Line::from(vec![
        Span::raw("kumi top").bold(),
        Span::raw(format!(
            "  {spaces} address space{}  {living} microprocess{}  {} switches/s",
            if spaces == 1 { "" } else { "s" },
            if living == 1 { "" } else { "es" },
            rate(switches)
        )),
    ]);
    if !model.filter.is_empty() {
        line.push_span(Span::raw(format!("  filter: {}", Plain(&model.filter))).fg(Color::Yellow));
    }
    if let Some(why) = &model.blind {
        line.push_span(Span::raw(format!("  {}", Plain(why))).fg(Color::Red));
    }
    line
}

/// Lines about recent violations of the board's protocol.
fn offences(model: &Model) -> Vec<Line<'static>> {
    let all = model.offenders().count();
    let shown = if all > OFFENCES { OFFENCES - 1 } else { all };
    let mut lines: Vec<Line> = model
        .offenders()
        .take(shown)
        .map(|one| Line::raw(board::offence(one)).fg(Color::Red))
        .collect();
    if all > shown {
        lines.push(Line::raw(format!("and {} more: kumi board", all - shown)).fg(Color::Red));
    }
    lines
}

fn message(model: &Model) -> Line<'_> {
    match &model.mode {
        Mode::Filter(_) => Line::raw(format!(
            "filter: {}_   (Enter keeps it, Esc clears it)",
            Plain(&model.filter)
        )),
        Mode::Confirm(id) => Line::raw(format!(
            "cancel {}? y confirms, any other key cancels the request",
            short(*id)
        ))
        .yellow(),
        Mode::Normal | Mode::Help => match &model.said {
            Some((said, refused)) => {
                let line = Line::raw(Plain(said).to_string());
                if *refused { line.red() } else { line.green() }
            }
            None => Line::default(),
        },
    }
}

fn labels(columns: &[(&str, usize)], indent: &str) -> String {
    let mut line = indent.to_owned();
    for (label, width) in columns {
        pad(&mut line, label, *width);
    }
    line
}

fn sorted_labels(model: &Model) -> Line<'static> {
    if model.usage {
        return Line::raw(labels(&USED, "  "));
    }
    let mut line = Line::raw("  ");
    for ((label, width), sort) in ONE.iter().zip(SORTS) {
        let chosen = sort == model.sort;
        let mark = if chosen && model.backwards { "^" } else { "" };
        let mut cell = String::new();
        pad(&mut cell, &format!("{label}{mark}"), *width);
        let cell = Span::raw(cell);
        line.push_span(if chosen { cell.add_modifier(Modifier::REVERSED) } else { cell });
    }
    line
}

/// Appends a cell, truncated or padded to its width, which includes a gap of one column. A width of
/// 0 takes the rest of the line.
fn pad(line: &mut String, text: &str, width: usize) {
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

fn choose(line: Line<'_>, chosen: bool, width: u16) -> Line<'_> {
    if !chosen {
        return line;
    }
    let rest = usize::from(width).saturating_sub(line.width());
    let mut line = line;
    line.push_span(" ".repeat(rest));
    line.patch_style(Style::new().add_modifier(Modifier::REVERSED))
}

fn row_line(model: &Model, row: Row) -> Line<'_> {
    match row {
        Row::Space(at) => space(&model.known[at]),
        Row::Summary(at) => summary(model, &model.known[at]),
        Row::Microprocess(at, one) => microprocess(&model.known[at].microprocesses[one]),
        Row::Resource(at, one) => resource(&model.known[at].resources[one]),
    }
}

/// Formats a rate: `999`, `1.2k`, `3.4M`; unknown: `-`.
fn rate(rate: Option<f64>) -> String {
    match rate {
        None => "-".to_owned(),
        Some(n) if n < 9.95 && n > 0.0 => format!("{n:.1}"),
        Some(n) if n < 999.5 => format!("{n:.0}"),
        Some(n) if n < 99_950.0 => format!("{:.1}k", n / 1e3),
        Some(n) if n < 999_500.0 => format!("{:.0}k", n / 1e3),
        Some(n) if n < 99_950_000.0 => format!("{:.1}M", n / 1e6),
        Some(n) => format!("{:.0}M", n / 1e6),
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
    if model.usage {
        parts.push(format!("{} resources", known.resources.len()));
    } else {
        let counts = STATES.iter().zip(known.counts()).filter(|(_, n)| *n > 0);
        parts.extend(counts.map(|(state, n)| format!("{n} {state}")));
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

fn microprocess(one: &Microprocess) -> Line<'static> {
    let mut line = "  ".to_owned();
    let mut cell = String::new();
    for (column, (_, width)) in ONE.iter().enumerate() {
        cell.clear();
        match column {
            2 if one.stopping => cell.push_str("stopping"),
            3 => match one.inherited {
                Some(lent) => cell = format!("{}+{lent}", one.priority),
                None => cell = one.priority.to_string(),
            },
            _ => ps::microprocess(one, column, &mut cell),
        }
        pad(&mut line, &cell, *width);
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
