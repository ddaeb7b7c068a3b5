//! The rules, applied to the tokens of one source file.

use std::fmt;

use ra_ap_rustc_lexer::{FrontmatterAllowed, LiteralKind, TokenKind, tokenize};

/// Words that hide the subject of a sentence.
const WORDS: [&str; 3] = ["who", "whoever", "whom"];
/// Maximum width of a comment line in columns.
pub const WIDTH: usize = 100;
/// Keywords that begin an item with its own documentation.
const ITEMS: [&str; 10] =
    ["fn", "struct", "enum", "union", "trait", "type", "const", "static", "unsafe", "async"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    Words,
    Width,
    Summary,
}

impl Rule {
    const ALL: [(Rule, &'static str); 3] =
        [(Rule::Words, "words"), (Rule::Width, "width"), (Rule::Summary, "summary")];

    pub fn from_name(name: &str) -> Option<Rule> {
        Rule::ALL.into_iter().find(|(_, of)| *of == name).map(|(rule, _)| rule)
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            Rule::ALL.into_iter().find(|(rule, _)| rule == self).map_or("", |(_, name)| name);
        f.write_str(name)
    }
}

/// A violation of a rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    pub file: String,
    pub line: usize,
    pub rule: Rule,
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.what)
    }
}

/// Checks the text of a file against all rules.
pub fn check(file: &str, text: &str) -> Vec<Finding> {
    let mut checker = Checker { file, text, found: Vec::new(), state: State::default() };
    let (mut at, mut line) = (0, 1);
    for token in tokenize(text, FrontmatterAllowed::No) {
        let end = at + token.len as usize;
        checker.token(token.kind, &text[at..end], at, line);
        line += text[at..end].matches('\n').count();
        at = end;
    }
    checker.found
}

/// Context of the current token.
#[derive(Default)]
struct State<'a> {
    /// Outer documentation and attributes since the last item.
    docs: Vec<&'a str>,
    is_documented_otherwise: bool,
    attribute: String,
    is_in_attribute: bool,
    is_test: bool,
    after_fn: bool,
    after_pub: bool,
}

struct Checker<'a> {
    file: &'a str,
    text: &'a str,
    found: Vec<Finding>,
    state: State<'a>,
}

impl<'a> Checker<'a> {
    fn note(&mut self, line: usize, rule: Rule, what: &str) {
        self.found.push(Finding {
            file: self.file.to_owned(),
            line,
            rule,
            what: what.trim().to_owned(),
        });
    }

    fn words(&mut self, text: &str, line: usize) {
        for (nth, one) in text.lines().enumerate() {
            let words = one.split(|c: char| !c.is_alphabetic());
            // Every occurrence counts, so that wrapping a line does not change the count.
            for _ in words.filter(|word| WORDS.iter().any(|of| word.eq_ignore_ascii_case(of))) {
                self.note(line + nth, Rule::Words, one);
            }
        }
    }

    /// Finds comment lines that end beyond the last column.
    fn width(&mut self, comment: &str, at: usize, line: usize) {
        let begin = self.text[..at].rfind('\n').map_or(0, |newline| newline + 1);
        let end = at + comment.len();
        for (nth, one) in self.text[begin..end].lines().enumerate() {
            if one.chars().count() > WIDTH {
                self.note(line + nth, Rule::Width, one);
            }
        }
    }

    fn token(&mut self, kind: TokenKind, text: &'a str, at: usize, line: usize) {
        match kind {
            TokenKind::LineComment { .. } | TokenKind::BlockComment { .. } => {
                self.words(text, line);
                self.width(text, at, line);
                if let Some(doc) = text.strip_prefix("///") {
                    self.state.docs.push(doc);
                }
            }
            TokenKind::Whitespace => {}
            TokenKind::Literal { kind, .. } => {
                if is_text(kind) {
                    // The letter of an escape is not part of a word.
                    self.words(&text.replace("\\n", "  ").replace("\\t", "  "), line);
                }
                self.other(text);
            }
            TokenKind::Ident => self.ident(text, line),
            _ => self.other(text),
        }
    }

    fn ident(&mut self, name: &'a str, line: usize) {
        if self.state.is_in_attribute {
            return self.other(name);
        }
        if std::mem::take(&mut self.state.after_fn) && self.state.is_test {
            self.words(&name.replace('_', " "), line);
        }
        if std::mem::take(&mut self.state.after_pub) && ITEMS.contains(&name) && self.is_library() {
            self.summary(line);
        }
        match name {
            "pub" => self.state.after_pub = true,
            "fn" => {
                let is_test = self.state.is_test;
                self.state = State { after_fn: true, is_test, ..State::default() };
            }
            // These keywords precede the item's own keyword.
            "unsafe" | "async" | "const" | "extern" => {}
            _ => self.state = State::default(),
        }
    }

    /// Handles punctuation, literals, and the contents of attributes.
    fn other(&mut self, text: &str) {
        let state = &mut self.state;
        match text {
            "#" => state.attribute = "#".to_owned(),
            "[" if state.attribute == "#" => {
                state.is_in_attribute = true;
                state.attribute.clear();
            }
            "]" if state.is_in_attribute => {
                state.is_in_attribute = false;
                let of = std::mem::take(&mut state.attribute);
                state.is_test |= of == "test";
                state.is_documented_otherwise |=
                    of.starts_with("doc") || of.starts_with("cfg_attr");
            }
            _ if state.is_in_attribute => state.attribute.push_str(text),
            _ => *state = State::default(),
        }
    }

    /// Returns whether the file belongs to the public interface of a library.
    fn is_library(&self) -> bool {
        self.file.starts_with("crates/")
            && self.file.contains("/src/")
            && !self.file.contains("/tests")
    }

    fn summary(&mut self, line: usize) {
        if self.state.is_documented_otherwise {
            return;
        }
        let first = self.state.docs.first().map_or("", |doc| doc.trim());
        let is_summary = first.starts_with(|c: char| {
            c.is_alphanumeric() || matches!(c, '`' | '[' | '"' | '(' | '\'' | '*')
        });
        let item = self.text.lines().nth(line - 1).unwrap_or_default();
        // An item in a macro is documented where the macro is used.
        if !is_summary && !item.contains('$') {
            self.note(line, Rule::Summary, item);
        }
    }
}

fn is_text(kind: LiteralKind) -> bool {
    matches!(
        kind,
        LiteralKind::Str { .. }
            | LiteralKind::RawStr { .. }
            | LiteralKind::ByteStr { .. }
            | LiteralKind::RawByteStr { .. }
            | LiteralKind::CStr { .. }
            | LiteralKind::RawCStr { .. }
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Vec<(usize, Rule)> {
        check("crates/a/src/b.rs", text)
            .into_iter()
            .map(|finding| (finding.line, finding.rule))
            .collect()
    }

    #[test]
    fn words_are_found_in_comments_strings_and_names_of_tests() {
        let text = "// Whoever waits.\nfn who() {\n    let who = \"for whom\";\n}\n#[test]\nfn who_waits() {}\n/* a\n who */";
        assert_eq!(found(text), [1, 3, 6, 8].map(|line| (line, Rule::Words)));
        assert_eq!(
            found("// whole, and somebody's; r#\"who\"#\nfn f() { g(b\"whose\") }"),
            [(1, Rule::Words)]
        );
    }

    #[test]
    fn wide_comment_lines_are_found_and_wide_code_is_not() {
        let (wide, narrow) = ("x".repeat(98), "x".repeat(97));
        assert_eq!(found(&format!("// {wide}\n// {narrow}\n")), [(1, Rule::Width)]);
        assert_eq!(
            found(&format!("fn {wide}() {{}} // end\n/* a\n{wide}xxx */")),
            [(1, Rule::Width), (3, Rule::Width)]
        );
        assert_eq!(found(&format!("const A: &str = \"{wide}{wide}\";")), []);
    }

    #[test]
    fn public_items_need_a_summary() {
        let text = "pub fn bare() {}\n/// Does it.\npub fn good() {}\n///\n/// Late.\npub struct Late;\npub(crate) fn own() {}\n\
                    /// # Errors\n#[must_use]\npub const fn heading() {}\npub use a::b;\n#[doc(hidden)]\npub fn hidden() {}\n";
        assert_eq!(found(text), [1, 6, 10].map(|line| (line, Rule::Summary)));
        assert_eq!(check("tools/a/src/b.rs", "pub fn bare() {}"), []);
    }
}
