//! Methods on the page of a type or trait.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::Page;

/// Headings behind which the methods are those of other types and of implementations.
const ENDS: [&str; 5] = [
    "id=\"deref-methods",
    "id=\"trait-implementations\"",
    "id=\"synthetic-implementations\"",
    "id=\"foreign-impls\"",
    "id=\"implementors\"",
];

/// The number of methods on the page that mirror none of std's, and those without an example.
pub fn missing(page: &Page, std: &Path) -> (usize, Vec<String>) {
    let texts = std_counterparts(&page.below).into_iter();
    let texts: Vec<String> = texts.flat_map(|below| fs::read_to_string(std.join(below))).collect();
    let of_std: BTreeSet<&str> =
        texts.iter().flat_map(|text| methods(text)).map(|(name, _)| name).collect();
    let mut own = methods(&page.text);
    own.retain(|(name, _)| !of_std.contains(name));
    let without = own.iter().filter(|(_, text)| !has_example(text));
    let without = without.map(|(name, _)| format!("{}: {name}", page.below.display())).collect();
    (own.len(), without)
}

/// Where std may have the page of the same item: `net/struct.UnixListener.html` is in `os/unix`.
fn std_counterparts(below: &Path) -> [PathBuf; 2] {
    let parts = below.iter().filter(|part| *part != "unix");
    [below.to_owned(), Path::new("os/unix").join(parts.collect::<PathBuf>())]
}

/// Names and documentation of the methods that the item itself has.
fn methods(page: &str) -> Vec<(&str, &str)> {
    let end = ENDS.iter().filter_map(|heading| page.find(heading)).min().unwrap_or(page.len());
    let sections = page[..end].split("<section id=\"").skip(1);
    sections.filter_map(|section| Some((name(section)?, section))).collect()
}

/// The name in `method.lock" class="method"`, `tymethod.place-1"`.
fn name(section: &str) -> Option<&str> {
    let id = section.split('"').next()?;
    let name = id.strip_prefix("method.").or_else(|| id.strip_prefix("tymethod."))?;
    name.split('-').next()
}

fn has_example(section: &str) -> bool {
    section.contains(" id=\"examples")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "<section id=\"method.new\" class=\"method\"></section><h5 id=\"examples\">\
                        <section id=\"impl-X\" class=\"impl\"></section>\
                        <section id=\"method.own\" class=\"method\"></section><p>text\
                        <section id=\"tymethod.place-1\" class=\"method\"></section>\
                        <h2 id=\"trait-implementations\">\
                        <section id=\"method.fmt\" class=\"method\"></section>";

    #[test]
    fn methods_of_implementations_are_left_out() {
        let names: Vec<_> = methods(PAGE).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["new", "own", "place"]);
    }

    #[test]
    fn methods_without_an_example_are_found_unless_std_has_them() {
        let std = std::env::temp_dir().join(format!("xtask-methods-{}", std::process::id()));
        fs::create_dir_all(std.join("os/unix/net")).expect("a folder");
        let mirrored = "<section id=\"method.own\" class=\"method\"></section>";
        fs::write(std.join("os/unix/net/struct.X.html"), mirrored).expect("written");
        let page = |below: &str| Page {
            path: PathBuf::new(),
            below: PathBuf::from(below),
            text: PAGE.to_owned(),
        };
        let found =
            [missing(&page("net/struct.X.html"), &std), missing(&page("struct.Y.html"), &std)];
        fs::remove_dir_all(&std).expect("removed");
        assert_eq!(found[0], (2, vec!["net/struct.X.html: place".to_owned()]));
        assert_eq!(found[1].1, ["struct.Y.html: own", "struct.Y.html: place"]);
    }
}
