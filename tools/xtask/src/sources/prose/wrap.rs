//! Wraps comment paragraphs that are wider than the limit.
//!
//! Only paragraphs of plain text and list items with a line that is too wide are changed. Tables,
//! code blocks, diagrams, and comments after code are left unchanged.

use ra_ap_rustc_lexer::{FrontmatterAllowed, TokenKind, tokenize};

use super::rules::WIDTH;

/// A line that contains only a comment.
#[derive(Clone, Copy)]
struct Comment<'a> {
    indent: &'a str,
    marker: &'a str,
    /// The text after the marker, without the first space.
    text: &'a str,
}

/// Returns the file's text with its wide paragraphs wrapped.
pub fn wrapped(text: &str) -> String {
    let comments = comments(text);
    let lines: Vec<&str> = text.split('\n').collect();
    let mut out: Vec<String> = Vec::with_capacity(lines.len());
    let mut at = 0;
    while at < lines.len() {
        let Some(first) = comments[at] else {
            out.push(lines[at].to_owned());
            at += 1;
            continue;
        };
        let is_same = |one: &Option<Comment<'_>>| {
            one.is_some_and(|one| (one.indent, one.marker) == (first.indent, first.marker))
        };
        let end = at + comments[at..].iter().take_while(|one| is_same(one)).count();
        block(&lines[at..end], &comments[at..end], &mut out);
        at = end;
    }
    out.join("\n")
}

/// The comment of each line that contains nothing else.
fn comments(text: &str) -> Vec<Option<Comment<'_>>> {
    let mut all = vec![None; text.split('\n').count()];
    let (mut at, mut line) = (0, 0);
    for token in tokenize(text, FrontmatterAllowed::No) {
        let of = &text[at..at + token.len as usize];
        let begin = text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let indent = &text[begin..at];
        if matches!(token.kind, TokenKind::LineComment { .. }) && indent.trim().is_empty() {
            let marker =
                if of.starts_with("//!") || of.starts_with("///") { &of[..3] } else { &of[..2] };
            let rest = of[marker.len()..].trim_end();
            all[line] =
                Some(Comment { indent, marker, text: rest.strip_prefix(' ').unwrap_or(rest) });
        }
        line += of.matches('\n').count();
        at += token.len as usize;
    }
    all
}

/// Wraps a run of comment lines with one indent and one marker.
fn block(lines: &[&str], comments: &[Option<Comment<'_>>], out: &mut Vec<String>) {
    let mut is_code = false;
    let mut at = 0;
    while let Some(Some(comment)) = comments.get(at).copied() {
        if comment.text.trim_start().starts_with("```") {
            is_code = !is_code;
        }
        let hang = hang(comment.text);
        let (Some(hang), false) = (hang, is_code) else {
            out.push(lines[at].to_owned());
            at += 1;
            continue;
        };
        let goes_on = |one: &&Option<Comment<'_>>| one.is_some_and(|one| continues(one.text, hang));
        let end = at + 1 + comments[at + 1..].iter().take_while(goes_on).count();
        if lines[at..end].iter().any(|line| line.chars().count() > WIDTH) {
            let words = comments[at..end]
                .iter()
                .flatten()
                .map(|one| one.text.trim())
                .collect::<Vec<_>>()
                .join(" ");
            let prefix = format!("{}{} ", comment.indent, comment.marker);
            fill(&words, &prefix, hang, out);
        } else {
            out.extend(lines[at..end].iter().map(|&line| line.to_owned()));
        }
        at = end;
    }
}

/// Indentation of a paragraph's continuation lines; `None` if the line is not text.
fn hang(text: &str) -> Option<usize> {
    let is_item = text.starts_with("- ") || text.starts_with("* ");
    let digits = text.chars().take_while(char::is_ascii_digit).count();
    let is_number = digits > 0 && text[digits..].starts_with(". ");
    if is_item {
        Some(2)
    } else if is_number {
        Some(digits + 2)
    } else {
        is_text(text).then_some(0)
    }
}

fn is_text(text: &str) -> bool {
    let first = text.chars().next();
    first.is_some_and(|c| !c.is_whitespace() && !matches!(c, '|' | '#' | '>' | '~'))
        && !text.contains("  ")
        && !text.contains('\t')
        && !text.starts_with("```")
        && !text.chars().any(|c| ('\u{2500}'..'\u{2600}').contains(&c))
}

/// Returns whether a line continues a paragraph with this indentation.
fn continues(text: &str, hang: usize) -> bool {
    match hang {
        // `SAFETY:` starts a paragraph, because Clippy expects it at the beginning of a line.
        0 => is_text(text) && self::hang(text) == Some(0) && !text.starts_with("SAFETY:"),
        _ => {
            text.len() > hang
                && text[..hang].trim().is_empty()
                && self::hang(&text[hang..]) == Some(0)
        }
    }
}

/// Fills lines with words. No line begins with a word that has a special meaning in Markdown.
fn fill(text: &str, prefix: &str, hang: usize, out: &mut Vec<String>) {
    let width = WIDTH.saturating_sub(prefix.chars().count());
    let mut line: Vec<String> = Vec::new();
    let mut is_first = true;
    let mut flush = |line: &[String]| {
        let indent = if std::mem::take(&mut is_first) { 0 } else { hang };
        out.push(format!("{prefix}{}{}", " ".repeat(indent), line.join(" ")));
    };
    let columns = |line: &[String]| line.iter().map(|word| word.chars().count() + 1).sum::<usize>();
    for word in words(text) {
        if !line.is_empty() && hang + columns(&line) + word.chars().count() > width {
            let mut next: Vec<String> = Vec::new();
            // If the next word must not begin a line, the preceding word moves to the next line as
            // well.
            while line.len() > 1 && begins_something(next.last().unwrap_or(&word)) {
                next.extend(line.pop());
            }
            flush(&line);
            next.reverse();
            line = next;
        }
        line.push(word);
    }
    flush(&line);
}

fn begins_something(word: &str) -> bool {
    let digits = word.chars().take_while(char::is_ascii_digit).count();
    word.starts_with(['-', '+', '*', '>', '#', '|', '=', '~'])
        || digits > 0 && word[digits..].starts_with(['.', ')'])
}

/// Splits text into words. Code between backticks is one word.
fn words(text: &str) -> Vec<String> {
    let mut all: Vec<String> = Vec::new();
    let mut is_open = false;
    for word in text.split(' ').filter(|word| !word.is_empty()) {
        match all.last_mut().filter(|_| is_open) {
            Some(last) => {
                last.push(' ');
                last.push_str(word);
            }
            None => all.push(word.to_owned()),
        }
        is_open ^= word.matches('`').count() % 2 == 1;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wide(n: usize) -> String {
        vec!["word"; n].join(" ")
    }

    #[test]
    fn wide_paragraphs_are_wrapped_and_nothing_else_changes() {
        let text = format!(
            "//! {}\n//!\n//! | {} |\n//! ```\n//! {}\n//! ```\nfn f() {{\n    let a = \"// {}\n    // x\";\n}}",
            wide(25),
            wide(25),
            wide(25),
            wide(25)
        );
        let lines = wrapped(&text);
        assert_eq!(lines.lines().next().map(str::len), Some("//! ".len() + 19 * 5 - 1));
        assert_eq!(lines.replacen("\n//! ", " ", 1), text, "{lines}");
        assert_eq!(wrapped(&lines), lines, "again");
    }

    #[test]
    fn list_items_keep_their_indent() {
        let text =
            format!("    /// - {}\n    ///   and `a b` {}\n    /// - next", wide(12), wide(12));
        let lines = wrapped(&text);
        let all: Vec<_> = lines.lines().collect();
        assert_eq!(all.len(), 3, "{lines}");
        assert!(all[1].starts_with("    ///   ") && all[2] == "    /// - next", "{lines}");
        assert!(all.iter().all(|line| line.len() <= WIDTH), "{lines}");
    }

    #[test]
    fn no_line_begins_with_a_list_marker_by_chance() {
        let text = format!("// {} a - b 2. {}", wide(18), wide(5));
        let lines = wrapped(&text);
        assert!(
            lines.lines().all(|line| !begins_something(line.trim_start_matches("// "))),
            "{lines}"
        );
    }
}
