//! Checks that the built documentation of `kumihimo` shows an example of each public type, trait,
//! function, macro and method.
//!
//! Items that std defines are left out: their documentation is std's. So are methods that mirror
//! std: std's page of the same item has a method of that name.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::failure::Failure;
use crate::report::Report;
use crate::workspace;

mod methods;

/// How the file names of items' pages begin. Aliases and constants need no example.
const KINDS: [&str; 7] = ["struct.", "enum.", "union.", "trait.", "fn.", "macro.", "attr."];

/// Adds the checks as steps. The documentation is built already.
pub fn check(report: &mut Report) -> Result<(), Failure> {
    println!("== examples in the documentation");
    let begun = Instant::now();
    let folder = workspace::target().join("doc/kumihimo");
    let pages = own_pages(&folder)?;
    let without: Vec<&Page> = pages.iter().filter(|page| !has_example(&page.text)).collect();
    without.iter().for_each(|page| println!("no `# Examples`: {}", page.path.display()));
    println!("{} items of our own, {} without an example", pages.len(), without.len());
    report.step("examples", !pages.is_empty() && without.is_empty(), begun.elapsed());

    let name = "examples of methods";
    let Some(std) = std_pages() else {
        report.skip(name, "no documentation of std: rustup component add rust-docs");
        return Ok(());
    };
    let begun = Instant::now();
    let (mut count, mut missing) = (0, Vec::new());
    for page in &pages {
        let (all, without) = methods::missing(page, &std);
        count += all;
        missing.extend(without);
    }
    missing.iter().for_each(|method| println!("no `# Examples`: {method}"));
    println!("{count} methods of our own, {} without an example", missing.len());
    report.step(name, count > 0 && missing.is_empty(), begun.elapsed());
    Ok(())
}

/// The folder of std's pages in the toolchain.
fn std_pages() -> Option<PathBuf> {
    let output = workspace::program("rustc").args(["--print", "sysroot"]).output().ok()?;
    let sysroot = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    let pages = sysroot.join("share/doc/rust/html/std");
    pages.join("sync/struct.Mutex.html").exists().then_some(pages)
}

/// The page of one of our own items.
struct Page {
    path: PathBuf,
    /// The path from the folder of the crate.
    below: PathBuf,
    text: String,
}

/// The pages of our own items below `folder`, in the order of their paths.
fn own_pages(folder: &Path) -> Result<Vec<Page>, Failure> {
    let mut pages = Vec::new();
    let mut folders = BTreeSet::from([folder.to_owned()]);
    while let Some(below) = folders.pop_first() {
        let entries = fs::read_dir(&below).map_err(|e| format!("{}: {e}", below.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.insert(path);
                continue;
            }
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !KINDS.iter().any(|kind| name.starts_with(kind)) || !name.ends_with(".html") {
                continue;
            }
            let text = fs::read_to_string(&path)?;
            if is_own(&text) {
                let below = path.strip_prefix(folder).unwrap_or(&path).to_owned();
                pages.push(Page { path, below, text });
            }
        }
    }
    pages.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(pages)
}

/// Whether an item is defined in this repository: the heading's link leads to no source of std, and
/// the page is no redirection to the item's page.
fn is_own(page: &str) -> bool {
    !page.contains("class=\"src\" href=\"https://doc.rust-lang.org/")
        && !page.contains("http-equiv=\"refresh\"")
}

/// Whether the item itself, and not only one of its methods, has the section.
fn has_example(page: &str) -> bool {
    page.contains("id=\"examples\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    const STD: &str =
        "<a class=\"src\" href=\"https://doc.rust-lang.org/1.95.0/src/std/fs.rs.html\">";
    const OF_A_METHOD: &str = "<a class=\"src rightside\" href=\"https://doc.rust-lang.org/1.95.0/src/core/any.rs.html\">";

    #[test]
    fn items_of_std_and_redirections_are_not_our_own() {
        assert!(is_own(OF_A_METHOD));
        assert!(!is_own(&format!("{OF_A_METHOD}{STD}")));
        assert!(!is_own("<meta http-equiv=\"refresh\" content=\"0;URL=macro.select.html\">"));
    }

    #[test]
    fn example_of_a_method_does_not_count() {
        assert!(has_example("<h2 id=\"examples\">"));
        assert!(!has_example("<h5 id=\"examples-1\">"));
    }

    #[test]
    fn pages_without_an_example_are_found() {
        let folder = std::env::temp_dir().join(format!("xtask-examples-{}", std::process::id()));
        fs::create_dir_all(folder.join("net")).expect("a folder");
        let write = |name: &str, text: &str| fs::write(folder.join(name), text).expect("written");
        write("struct.Good.html", "<h2 id=\"examples\">");
        write("net/fn.bad.html", "<h2 id=\"errors\">");
        write("net/struct.Std.html", STD);
        write("net/type.Alias.html", "");
        let pages = own_pages(&folder).expect("readable");
        fs::remove_dir_all(&folder).expect("removed");
        let without: Vec<_> = pages.iter().filter(|page| !has_example(&page.text)).collect();
        assert_eq!((pages.len(), without.len()), (2, 1));
        assert_eq!(without[0].below, Path::new("net/fn.bad.html"));
    }
}
