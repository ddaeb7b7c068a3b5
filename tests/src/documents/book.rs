//! Reads the pages of the book (`docs/src`): their prose, code blocks, links and anchors.

use std::path::{Path, PathBuf};

/// A fenced code block.
#[derive(Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// What stands behind the opening fence: `rust,ignore`.
    pub info: &'a str,
    /// Its lines.
    pub lines: Vec<&'a str>,
}

/// All pages below `folder`, sorted, `SUMMARY.md` among them.
///
/// # Panics
/// If a folder cannot be read.
#[must_use]
pub fn pages(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder of the book").flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.extend(pages(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            all.push(path);
        }
    }
    all.sort();
    all
}

/// The code blocks of a page.
#[must_use]
pub fn blocks(text: &str) -> Vec<Block<'_>> {
    let mut all: Vec<Block<'_>> = Vec::new();
    let mut is_inside = false;
    for line in text.lines() {
        match (line.strip_prefix("```"), is_inside) {
            (Some(info), false) => {
                all.push(Block { info, lines: Vec::new() });
                is_inside = true;
            }
            (Some(_), true) => is_inside = false,
            (None, true) => all.last_mut().expect("a block is open").lines.push(line),
            (None, false) => {}
        }
    }
    all
}

/// A page without its code blocks.
#[must_use]
pub fn prose(text: &str) -> String {
    let mut is_inside = false;
    let mut prose = String::new();
    for line in text.lines() {
        if line.starts_with("```") {
            is_inside = !is_inside;
        } else if !is_inside {
            prose.push_str(line);
            prose.push('\n');
        }
    }
    prose
}

/// Words of the prose: what has a letter or a digit.
#[must_use]
pub fn words(text: &str) -> usize {
    let has_letter = |word: &&str| word.contains(char::is_alphanumeric);
    prose(text).split_whitespace().filter(has_letter).count()
}

/// Targets of the links and images that lead to files or anchors, `page.md#anchor`.
#[must_use]
pub fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    // Code in a line is no link.
    let plain: String = prose.split('`').step_by(2).collect();
    let targets = plain.split("](").skip(1).filter_map(|rest| rest.split([')', ' ']).next());
    targets.filter(|target| !target.contains("://")).map(str::to_owned).collect()
}

/// The anchors of a page: mdBook makes one of each heading.
#[must_use]
pub fn anchors(text: &str) -> Vec<String> {
    let prose = prose(text);
    let headings = prose.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| anchor(line.trim_start_matches('#').trim())).collect()
}

/// Letters and digits in lower case, `_` and `-`; a space becomes `-`; all else is dropped.
fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        c if c.is_alphanumeric() || c == '_' || c == '-' => Some(c.to_ascii_lowercase()),
        c if c.is_whitespace() => Some('-'),
        _ => None,
    };
    heading.chars().filter_map(kept).collect()
}

/// The file and the anchor of an include: `{{#include ../file.rs:anchor}}`.
#[must_use]
pub fn include(line: &str) -> Option<(&str, Option<&str>)> {
    let target = line.trim().strip_prefix("{{#include ")?.strip_suffix("}}")?;
    Some(target.split_once(':').map_or((target, None), |(file, anchor)| (file, Some(anchor))))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "# A `Mutex`, locked\n\nSee [it](b.md#x-y) and `a[0](b)`.\n\
                        \n```rust\nlet a = 1; // ](c.md)\n```\n![p](i.svg)\n";

    #[test]
    fn code_is_no_prose() {
        assert_eq!(words(PAGE), 8, "{}", prose(PAGE));
        let block = Block { info: "rust", lines: vec!["let a = 1; // ](c.md)"] };
        assert_eq!(blocks(PAGE), [block]);
    }

    #[test]
    fn links_of_code_are_none() {
        assert_eq!(links(PAGE), ["b.md#x-y", "i.svg"]);
        assert!(links("[x](https://example.org)").is_empty());
    }

    #[test]
    fn headings_have_the_anchors_of_mdbook() {
        assert_eq!(anchors(PAGE), ["a-mutex-locked"]);
        assert_eq!(anchors("## 1. Is it a release build?"), ["1-is-it-a-release-build"]);
    }

    #[test]
    fn includes_are_read() {
        assert_eq!(include("{{#include ../a.rs:main}}"), Some(("../a.rs", Some("main"))));
        assert_eq!(include("{{#include ../a.rs}}"), Some(("../a.rs", None)));
        assert_eq!(include("let a = 1;"), None);
    }
}
