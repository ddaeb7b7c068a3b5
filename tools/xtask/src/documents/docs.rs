//! `cargo xtask docs`: the reference of the API by rustdoc, and the book by mdBook (`make docs`
//! calls it).
//!
//! Both fail on warnings. mdBook reports a missing file or a broken include as a warning and
//! succeeds, so its output is examined. Links, anchors and lengths of pages are checked by
//! `tests/tests/book.rs`.

use std::process::ExitCode;
use std::time::Instant;

use crate::report::Report;
use crate::tools::Tool;
use crate::workspace::{self, program};
use crate::{Failure, test};

/// Renders the book. Without the server that `mdbook serve` is, which has 150 dependencies.
const MDBOOK: Tool = Tool {
    name: "mdbook",
    version: "0.5.4",
    options: &["--no-default-features", "--features", "search"],
};

/// Builds the documentation. Blocks the kernel thread.
pub fn run() -> Result<ExitCode, Failure> {
    let mut report = Report::default();
    let mut reference = workspace::cargo();
    reference.args(["doc", "--no-deps"]).args(test::product());
    report.run_step("reference", reference.env("RUSTDOCFLAGS", "-D warnings"))?;
    book(&mut report)?;
    let target = workspace::target();
    println!("reference: {}", target.join("doc/kumihimo/index.html").display());
    println!("book: {}", target.join("book/index.html").display());
    Ok(report.finish())
}

/// Adds the build of the book to a report as one step.
pub fn book(report: &mut Report) -> Result<(), Failure> {
    let Some(mdbook) = MDBOOK.path() else {
        report.skip("book", "mdbook could not be built (see above)");
        return Ok(());
    };
    println!("== book");
    let begun = Instant::now();
    let mut build = program(&mdbook.to_string_lossy());
    build.args(["build", "docs", "--dest-dir"]).arg(workspace::target().join("book"));
    let output = build.output().map_err(|e| format!("mdbook: {e}"))?;
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let passes = output.status.success() && !text.lines().any(is_warning);
    if !passes {
        print!("{text}");
    }
    report.step("book", passes, begun.elapsed());
    Ok(())
}

/// Whether mdBook warns in this line. Its lines begin with the level, behind a time or not.
fn is_warning(line: &str) -> bool {
    line.split_whitespace().take(3).any(|word| {
        let word = word.trim_matches(|c: char| !c.is_ascii_alphabetic());
        ["WARN", "WARNING", "ERROR"].contains(&word)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_of_mdbook_are_recognised() {
        assert!(is_warning(" WARN unclosed HTML tag `<b>`"));
        assert!(is_warning("2026-11-26 18:00:00 [ERROR] (mdbook::utils): no such file"));
        assert!(!is_warning(" INFO Book building has started"));
        assert!(!is_warning(" INFO the chapter about errors: ERROR"));
    }
}
