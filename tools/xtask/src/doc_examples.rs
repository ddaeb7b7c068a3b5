//! Checks that the built documentation of `kumihimo` shows an example of each public type, trait,
//! function and macro.
//!
//! Items that std defines are left out: their documentation is std's.

use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::failure::Failure;
use crate::report::Report;
use crate::workspace;

/// How the file names of items' pages begin. Aliases and constants need no example.
const KINDS: [&str; 6] = ["struct.", "enum.", "union.", "trait.", "fn.", "macro."];

/// Adds the check as a step. The documentation is built already.
pub fn check(report: &mut Report) -> Result<(), Failure> {
    println!("== examples in the documentation");
    let begun = Instant::now();
    let (pages, without) = missing(&workspace::target().join("doc/kumihimo"))?;
    without.iter().for_each(|page| println!("no `# Examples`: {page}"));
    println!("{pages} items of our own, {} without an example", without.len());
    report.step("examples", pages > 0 && without.is_empty(), begun.elapsed());
    Ok(())
}

/// The number of our own items with a page below `folder`, and the pages without an example.
fn missing(folder: &Path) -> Result<(usize, Vec<String>), Failure> {
    let (mut pages, mut without) = (0, Vec::new());
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            if !KINDS.iter().any(|kind| name.starts_with(kind)) || !name.ends_with(".html") {
                continue;
            }
            let page = fs::read_to_string(&path)?;
            if is_own(&page) {
                pages += 1;
                if !has_example(&page) {
                    without.push(path.display().to_string());
                }
            }
        }
    }
    without.sort();
    Ok((pages, without))
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
        let (pages, without) = missing(&folder).expect("readable");
        fs::remove_dir_all(&folder).expect("removed");
        assert_eq!((pages, without.len()), (2, 1));
        assert!(without[0].ends_with("net/fn.bad.html"), "{without:?}");
    }
}
