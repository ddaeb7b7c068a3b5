//! Display of `kumi top`.

mod columns;
mod lines;
mod panel;

use kumihimo_machine::top::TopGrouping;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};

use super::cells::rate;
use super::keys::GROUP_SORTS;
use super::known::Item;
use super::model::{Mode, Model, Panel};
use crate::text::{Plain, short};
use columns::{GROUP, SPACE, USED};

/// Smallest supported size of the terminal.
const LEAST: (u16, u16) = (60, 10);

const KEYS: &str = "q end ? help / filter f find <> sort t group Enter open e exact src+- steer";

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
    let details = details(model, area.height);
    let [title, spaces, columns, body, below, said, keys] = Layout::vertical([
        bar,
        bar,
        bar,
        Constraint::Min(1),
        Constraint::Length(details.len() as u16),
        bar,
        bar,
    ])
    .areas(area);
    model.fit(usize::from(body.height));
    frame.render_widget(head(model), title);
    frame.render_widget(Line::raw(columns::labels(&SPACE, "")).bold(), spaces);
    frame.render_widget(heads(model, area.width).bold(), columns);
    if let Mode::Panel(panel, from) = &model.mode {
        let from = fill(frame, body, panel::lines(model, panel), *from);
        model.mode = Mode::Panel(panel.clone(), from);
    } else if model.len() == 0 {
        fill(frame, body, vec![Line::raw(empty(model))], 0);
    } else {
        let rows = model.offset..model.offset + usize::from(body.height);
        let shown = rows.map_while(|at| {
            let line = lines::row(model, model.row(at)?, area.width);
            Some(choose(line, at == model.selected, body.width))
        });
        fill(frame, body, shown.collect(), 0);
        fill(frame, below, details, 0);
    }
    frame.render_widget(message(model), said);
    frame.render_widget(Line::raw(KEYS).style(Style::new().add_modifier(Modifier::REVERSED)), keys);
}

/// Draws lines from `from` on, but leaves no place empty that could show one. Returns the first one
/// that is drawn.
fn fill(frame: &mut Frame, area: Rect, all: Vec<Line<'_>>, from: usize) -> usize {
    let from = from.min(all.len().saturating_sub(usize::from(area.height)));
    for (line, row) in all.into_iter().skip(from).zip(area.rows()) {
        frame.render_widget(line, row);
    }
    from
}

/// The stack of the selected group, below the rows.
fn details(model: &Model, height: u16) -> Vec<Line<'static>> {
    let Some(Item::Group(group)) = model.selected_item() else { return Vec::new() };
    if group.stack.is_none() || matches!(model.mode, Mode::Panel(..)) {
        return Vec::new();
    }
    let room = usize::from(height / 3);
    let stack = panel::stack(&group.what);
    let title = format!("{} at this place; b shows the whole stack", group.count);
    let mut lines = vec![Line::raw(title).bold()];
    lines.extend(stack.into_iter().take(room.saturating_sub(1)));
    lines
}

fn empty(model: &Model) -> &'static str {
    match (model.looked, model.filter.is_empty()) {
        (false, _) => "looking ...",
        (true, true) if model.is_narrow => "the address spaces that were named have ended",
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
    if model.settings.group != TopGrouping::None && !model.settings.usage {
        line.push_span(format!("  {}", grouping(model.settings.group)));
    }
    if model.exact {
        line.push_span("  exact");
    }
    if !model.filter.is_empty() {
        line.push_span(Span::raw(format!("  filter: {}", Plain(&model.filter))).fg(Color::Yellow));
    }
    let violations = model.violations().count();
    if violations > 0 {
        let unit = if violations == 1 { "" } else { "s" };
        let count = Span::raw(format!("  {violations} violation{unit}: !"));
        let is_recent = model.violations().any(|(_, is_recent)| is_recent);
        line.push_span(if is_recent { count.fg(Color::Red) } else { count });
    }
    if let Some(why) = &model.blind {
        line.push_span(Span::raw(format!("  {}", Plain(why))).fg(Color::Red));
    }
    line
}

fn grouping(group: TopGrouping) -> &'static str {
    match group {
        TopGrouping::None => "",
        TopGrouping::WaitsFor => "by wait",
        TopGrouping::Name => "by name",
        TopGrouping::Tree => "tree",
        TopGrouping::Stack => "by stack",
    }
}

fn message(model: &Model) -> Line<'_> {
    match &model.mode {
        Mode::Filter(_) => Line::raw(format!(
            "filter: {}_   (Enter keeps it, Esc clears it)",
            Plain(&model.filter)
        )),
        Mode::Find(_) => Line::raw(format!(
            "find: {}_   (Enter searches, n searches again)",
            Plain(&model.search)
        )),
        Mode::Confirm(id) => Line::raw(format!(
            "cancel {}? y confirms, any other key cancels the request",
            short(*id)
        ))
        .yellow(),
        Mode::Panel(Panel::Help | Panel::Histograms | Panel::Violations | Panel::Stack(..), _) => {
            Line::raw("up and down scroll; any other key returns")
        }
        Mode::Normal => match &model.said {
            Some((said, refused)) => {
                let line = Line::raw(Plain(said).to_string());
                if *refused { line.red() } else { line.green() }
            }
            None => Line::default(),
        },
    }
}

/// Heads of the columns of the rows.
fn heads(model: &Model, width: u16) -> Line<'static> {
    if model.settings.usage {
        return Line::raw(columns::labels(&USED, "  "));
    }
    if model.shows_groups() {
        let columns = GROUP.into_iter().zip(GROUP_SORTS);
        return sorted_heads(columns.map(|((label, width), sort)| {
            (label, width, (sort == model.settings.group_sort).then_some(model.settings.backwards))
        }));
    }
    let columns = columns::of_microprocesses(width, model.settings.sort);
    sorted_heads(columns.into_iter().map(|(column, width)| {
        let chosen = column.sort == model.settings.sort;
        (column.label, width, chosen.then_some(model.settings.backwards))
    }))
}

/// Heads of columns with their widths. The chosen one is highlighted, with a mark if the order is
/// reversed.
fn sorted_heads(
    columns: impl Iterator<Item = (&'static str, usize, Option<bool>)>,
) -> Line<'static> {
    let mut line = Line::raw("  ");
    for (label, width, chosen) in columns {
        let mark = if chosen == Some(true) { "^" } else { "" };
        let mut cell = String::new();
        columns::pad(&mut cell, &format!("{label}{mark}"), width);
        let cell = Span::raw(cell);
        line.push_span(match chosen {
            Some(_) => cell.add_modifier(Modifier::REVERSED),
            None => cell,
        });
    }
    line
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
