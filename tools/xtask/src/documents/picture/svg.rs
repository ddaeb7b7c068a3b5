//! A terminal's screen as an SVG: one text element for each run of cells that look the same.

use std::fmt::Write;

use vt100::{Cell, Color, Screen};

/// A cell, in pixels; the baseline of its text; and the margin around the screen.
const WIDTH: f64 = 7.8;
const HEIGHT: f64 = 17.0;
const BASELINE: f64 = 12.5;
const MARGIN: f64 = 12.0;

const FOREGROUND: &str = "#d8dee9";
const BACKGROUND: &str = "#1e222a";

/// The first sixteen colours.
const PALETTE: [&str; 16] = [
    "#3b4252", "#e06c75", "#98c379", "#e5c07b", "#61afef", "#c678dd", "#56b6c2", "#d8dee9",
    "#5c6370", "#ff7a85", "#b5e890", "#ffd68a", "#7cc4ff", "#dd8ff0", "#6fd0dc", "#ffffff",
];

/// How a cell looks.
#[derive(Clone, Debug, PartialEq)]
struct Style {
    text: String,
    ground: Option<String>,
    is_bold: bool,
}

impl Style {
    fn of(cell: &Cell) -> Style {
        let text = colour(cell.fgcolor()).unwrap_or_else(|| FOREGROUND.to_owned());
        let ground = colour(cell.bgcolor());
        let (text, ground) = if cell.inverse() {
            (ground.unwrap_or_else(|| BACKGROUND.to_owned()), Some(text))
        } else {
            (text, ground)
        };
        Style { text, ground, is_bold: cell.bold() }
    }
}

/// `None`: the terminal's own.
fn colour(color: Color) -> Option<String> {
    match color {
        Color::Default => None,
        Color::Idx(n) => PALETTE.get(usize::from(n)).map(|&name| name.to_owned()),
        Color::Rgb(r, g, b) => Some(format!("#{r:02x}{g:02x}{b:02x}")),
    }
}

/// The picture.
pub fn draw(screen: &Screen) -> String {
    let (rows, columns) = screen.size();
    let (width, height) = (
        f64::from(columns.get()) * WIDTH + 2.0 * MARGIN,
        f64::from(rows.get()) * HEIGHT + 2.0 * MARGIN,
    );
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.1} {height:.1}\" \
         font-family=\"ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace\" \
         font-size=\"13\" role=\"img\" aria-label=\"The screen of kumi top\">\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"{BACKGROUND}\"/>\n"
    );
    for row in 0..rows.get() {
        let mut column = 0;
        while column < columns.get() {
            column = run(&mut svg, screen, row, column, columns.get());
        }
    }
    svg.push_str("</svg>\n");
    svg
}

/// Draws the run of cells that begins at `first`, and returns the column behind it.
fn run(svg: &mut String, screen: &Screen, row: u16, first: u16, columns: u16) -> u16 {
    let Some(style) = screen.cell(row, first).map(Style::of) else { return columns };
    let (mut text, mut end) = (String::new(), first);
    while let Some(cell) = screen.cell(row, end).filter(|cell| Style::of(cell) == style) {
        let contents = cell.contents();
        text.push_str(if contents.is_empty() { " " } else { contents });
        end += 1;
    }
    let (x, y) = (f64::from(first) * WIDTH + MARGIN, f64::from(row) * HEIGHT + MARGIN);
    let width = f64::from(end - first) * WIDTH;
    if let Some(ground) = &style.ground {
        let _ = writeln!(
            svg,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{HEIGHT}\" \
             fill=\"{ground}\"/>"
        );
    }
    let kept = text.trim_end();
    if !kept.is_empty() {
        let length = kept.chars().count() as f64 * WIDTH;
        let weight = if style.is_bold { " font-weight=\"bold\"" } else { "" };
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" fill=\"{}\"{weight} textLength=\"{length:.1}\" \
             xml:space=\"preserve\">{}</text>",
            y + BASELINE,
            style.text,
            escaped(kept)
        );
    }
    end
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use std::num::NonZero;

    use super::*;

    fn drawn(bytes: &str) -> String {
        let cells = |n| NonZero::new(n).expect("not zero");
        let mut parser = vt100::Parser::new(cells(2), cells(10), 0);
        parser.process(bytes.as_bytes());
        draw(parser.screen())
    }

    #[test]
    fn cells_that_look_the_same_are_one_text() {
        let svg = drawn("\x1b[31mab\x1b[0m<c>");
        assert_eq!(svg.matches("<text").count(), 2, "{svg}");
        assert!(svg.contains(">ab<") && svg.contains(PALETTE[1]), "{svg}");
        assert!(svg.contains("&lt;c&gt;"), "{svg}");
    }

    #[test]
    fn inverse_cells_have_a_ground() {
        let svg = drawn("\x1b[7mx\x1b[0m");
        assert!(svg.contains(&format!("fill=\"{FOREGROUND}\"/>")), "{svg}");
        assert!(svg.contains(&format!("fill=\"{BACKGROUND}\" textLength")), "{svg}");
    }

    #[test]
    fn empty_screen_has_no_text() {
        assert!(!drawn("").contains("<text"));
    }
}
