//! Line counts of one source text.

use std::iter::Sum;
use std::ops::Add;

use crate::touches_locking;

/// Number of lines of code, and of lines that touch locking.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Lines {
    /// Lines other than blank lines, comments and tests.
    pub code: u64,
    /// Lines of code that touch locking.
    pub locking: u64,
}

impl Lines {
    /// Counts the lines of one source file.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut counter = Counter::default();
        for line in text.lines() {
            counter.add(line);
        }
        counter.lines
    }
}

impl Add for Lines {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self { code: self.code + other.code, locking: self.locking + other.locking }
    }
}

impl Sum for Lines {
    fn sum<I: Iterator<Item = Self>>(lines: I) -> Self {
        lines.fold(Self::default(), Add::add)
    }
}

/// Context of the next line.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Code,
    /// After a `#[cfg(test)]`, before the item to which it applies.
    TestAttribute,
    /// Inside a top-level block for tests only, up to its closing brace.
    TestBlock,
}

#[derive(Default)]
struct Counter {
    lines: Lines,
    place: Place,
}

impl Counter {
    fn add(&mut self, line: &str) {
        let trimmed = line.trim_start_matches(' ');
        match self.place {
            Place::TestBlock => {
                if line.starts_with('}') {
                    self.place = Place::Code;
                }
            }
            _ if is_test_attribute(trimmed) => self.place = Place::TestAttribute,
            Place::TestAttribute if trimmed.starts_with("#[") => {}
            Place::TestAttribute => {
                self.place = if opens_block(line) { Place::TestBlock } else { Place::Code };
            }
            Place::Code => {
                let code = line.trim_start_matches([' ', '\t']);
                if !code.is_empty() && !code.starts_with("//") {
                    self.lines.code += 1;
                    self.lines.locking += u64::from(touches_locking(line));
                }
            }
        }
    }
}

/// `#[cfg(test)]`, `#[cfg(all(test, ...))]`.
fn is_test_attribute(trimmed: &str) -> bool {
    trimmed.starts_with("#[cfg(test") || trimmed.starts_with("#[cfg(all(test")
}

/// Matches the first line of a top-level module, function or implementation whose block ends with a
/// brace in the first column.
fn opens_block(line: &str) -> bool {
    let item = without_visibility(line);
    let keyword = ["mod", "fn", "impl"].iter().any(|keyword| item.starts_with(keyword));
    keyword && line.ends_with('{') && !line.contains(';')
}

fn without_visibility(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("pub") else { return line };
    let rest = match rest.strip_prefix('(').and_then(|scope| scope.split_once(')')) {
        Some((scope, rest)) if scope.bytes().all(|byte| byte.is_ascii_lowercase()) => rest,
        _ => rest,
    };
    rest.strip_prefix(' ').unwrap_or(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(code: u64, locking: u64) -> Lines {
        Lines { code, locking }
    }

    #[test]
    fn comments_and_blank_lines_are_left_out() {
        let text = "//! Module: self.state.lock()\n\n/// Item.\nfn f() {\n\t// state.lock()\n    g(); // h\n \t \n}\n";
        assert_eq!(Lines::of(text), lines(3, 0));
    }

    #[test]
    fn line_with_several_locks_is_counted_once() {
        assert_eq!(Lines::of("a.lock(); b.lock();\nc();\n"), lines(2, 1));
    }

    #[test]
    fn test_module_is_left_out_up_to_its_closing_brace() {
        let text = "a.lock();\n#[cfg(test)]\nmod tests {\n    fn f() {\n        b.lock();\n    }\n}\nc.lock();\n";
        assert_eq!(Lines::of(text), lines(2, 2));
    }

    #[test]
    fn attribute_between_the_condition_and_its_item_is_left_out() {
        let text = "#[cfg(all(test, not(loom)))]\n#[allow(unused)]\npub(crate) mod tests {\n    a.lock();\n}\nb();\n";
        assert_eq!(Lines::of(text), lines(1, 0));
    }

    #[test]
    fn test_item_without_a_block_is_one_line() {
        assert_eq!(Lines::of("#[cfg(test)]\nmod tests;\na.lock();\n"), lines(1, 1));
        assert_eq!(
            Lines::of("    #[cfg(test)]\n    hook: Mutex<u32>,\n    a.lock();\n"),
            lines(1, 1)
        );
    }

    #[test]
    fn only_the_first_line_of_an_indented_test_item_is_left_out() {
        let text =
            "impl A {\n    #[cfg(test)]\n    fn f(&self) {\n        self.a.lock();\n    }\n}\n";
        assert_eq!(Lines::of(text), lines(4, 1));
    }

    #[test]
    fn other_conditions_do_not_hide_code() {
        assert_eq!(Lines::of("#[cfg(not(loom))]\nmod real {\n    a.lock();\n}\n"), lines(4, 1));
    }

    #[test]
    fn items_with_and_without_visibility_open_a_block() {
        for line in ["mod a {", "pub mod a {", "pub(crate) fn a() {", "impl A for B {"] {
            assert!(opens_block(line), "{line}");
        }
        for line in [
            "mod a;",
            "    mod a {",
            "use a::{",
            "pub(in crate::b) mod a {",
            "pub use a::b {",
            "fn a(b: [u8; 2]) {",
        ] {
            assert!(!opens_block(line), "{line}");
        }
    }
}
