//! Text that covers the rows: help, histograms, violations, stacks.

use ratatui::style::Stylize;
use ratatui::text::Line;

use super::super::histogram;
use super::super::model::{Model, Panel};
use crate::show::board;
use crate::text::Plain;

const HELP: [&str; 46] = [
    "up down PgUp PgDn Home End   choose a row (also k j g G)",
    "Enter                        fold or unfold an address space; show the members",
    "                             of a group",
    "Esc Backspace                back from the members to the groups",
    "space left right             fold or unfold an address space",
    "/                            filter by a text; Enter keeps it, Esc clears it",
    "f n                          find a text; find it again",
    "< > i                        sort by another column; reverse the order",
    "t T                          group by name, as a tree of names, by what is",
    "                             waited for, by stack, or not; T backwards",
    "u                            the usage table: every kind of resource, and back",
    "",
    "s r                          suspend, resume the chosen microprocess",
    "c                            cancel it; y confirms",
    "+ -                          raise or lower its priority by one",
    "b                            its stack, or that of the group",
    "e                            account CPU time exactly while kumi top runs, or",
    "                             sample it: exact accounting reads the clock at",
    "                             each switch of the programs",
    "v                            histograms of each virtual processor: time from",
    "                             wake-up to run, and length of the run queue",
    "!                            violations of the board's protocol (see kumi board)",
    "Ctrl-L, Ctrl-Z               redraw; stop, as a job of the shell",
    "q or Ctrl-C                  quit",
    "",
    "Address spaces: CPU in percent of one core; VPS virtual processors; LIVING",
    "microprocesses. Rates are those since the last update.",
    "CPU%       of one core since the last update; sampled, unless it is exact",
    "PRI        the own priority, 0 to 63, and after + the lent priority",
    "VP         the virtual processor on which it ran last",
    "SWITCH/s   how often it left its virtual processor",
    "STACK      bytes of its stack in use; unknown while it runs",
    "FOR        how long its present wait has lasted",
    "WAITS-FOR  the object of the wait, with the holder of a lock",
    "A narrow screen shows some of these; the sort key selects its column.",
    "Groups: COUNT members; CPU% and WAITED are the sums of theirs. A name counts",
    "without the number at its end. In the tree, http/conn is below http, which has",
    "the totals of both. A group by stack has the same calls at the same places.",
    "",
    "Each update queries every address space for its description and counters, and",
    "for the rows that are on the screen. The programs sort, filter and group",
    "themselves. None is stopped.",
    "Red: a virtual processor that was overridden, or requests that were refused.",
    "",
    "Sort key, direction, grouping and usage table are remembered, if keys changed",
    "them, in kumihimo/top.json below $XDG_CONFIG_HOME or ~/.config.",
];

/// Returns the lines of a panel.
pub fn lines(model: &Model, panel: &Panel) -> Vec<Line<'static>> {
    match panel {
        Panel::Help => HELP.iter().map(|text| Line::raw(*text)).collect(),
        Panel::Histograms => histograms(model),
        Panel::Violations => violations(model),
        Panel::Stack(title, text) => {
            let title = Line::raw(Plain(title).to_string()).bold();
            std::iter::once(title).chain(stack(text)).collect()
        }
    }
}

/// Returns the lines of a stack.
pub fn stack(text: &str) -> Vec<Line<'static>> {
    text.lines().map(|line| Line::raw(Plain(line).to_string())).collect()
}

fn histograms(model: &Model) -> Vec<Line<'static>> {
    let Some(known) = model.selected_space().map(|at| &model.known[at]) else {
        return vec![Line::raw("no address space is selected")];
    };
    let title = Line::raw(format!("address space {}, since its start", known.number)).bold();
    let mut lines = vec![title];
    match &known.answer {
        None => lines.push(Line::raw("looking ...")),
        Some((_, answer)) if answer.totals.vps.is_empty() => {
            lines.push(Line::raw("it has no histograms"));
        }
        Some((_, answer)) => {
            lines.extend(histogram::lines(&answer.totals.vps).into_iter().map(Line::raw));
        }
    }
    lines
}

fn violations(model: &Model) -> Vec<Line<'static>> {
    let lines: Vec<Line> = model
        .violations()
        .map(|(one, is_recent)| {
            let line = Line::raw(board::offence(one));
            if is_recent { line.red() } else { line }
        })
        .collect();
    if lines.is_empty() {
        return vec![Line::raw("no address space has violated the board's protocol")];
    }
    lines
}
