//! Parses the tables in the project's documents that tests check against the source tree. [`book`]:
//! the programs in the book's pages.

pub mod book;

use std::path::Path;

/// A row of a table of bad input, in `docs/src/reference/bad-input`.
#[derive(Debug, PartialEq, Eq)]
pub struct BadInput {
    /// Description of the input.
    pub input: String,
    /// Description of the outcome.
    pub outcome: String,
    /// Tests of this input, each as `path/from/the/root.rs::name`.
    pub tests: Vec<String>,
}

/// Parses the rows of the table `| input | outcome | test |`.
///
/// # Errors
/// If a row does not have three cells, or names no test.
pub fn bad_inputs(text: &str) -> Result<Vec<BadInput>, String> {
    let mut lines = text.lines().skip_while(|line| cells(line) != ["input", "outcome", "test"]);
    lines.next();
    lines
        .skip(1)
        .take_while(|line| line.starts_with('|'))
        .map(|line| match &cells(line)[..] {
            [input, outcome, tests] => {
                let tests: Vec<_> =
                    tests.split('`').skip(1).step_by(2).map(str::to_owned).collect();
                let row =
                    BadInput { input: (*input).to_owned(), outcome: (*outcome).to_owned(), tests };
                if row.tests.is_empty() { Err(format!("no test in row: {line}")) } else { Ok(row) }
            }
            _ => Err(format!("not three cells: {line}")),
        })
        .collect()
}

fn cells(line: &str) -> Vec<&str> {
    line.trim().trim_matches('|').split('|').map(str::trim).collect()
}

/// Checks that `name`, in the form `path.rs::test`, is a test in the tree below `root`.
///
/// # Errors
/// If the file or the function does not exist, or the function is not a test or is ignored.
pub fn find_test(root: &Path, name: &str) -> Result<(), String> {
    let (path, test) =
        name.split_once("::").ok_or_else(|| format!("{name}: not of the form path.rs::test"))?;
    let text =
        std::fs::read_to_string(root.join(path)).map_err(|e| format!("{name}: {path}: {e}"))?;
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    let found = lines
        .iter()
        .position(|line| line.starts_with(&format!("fn {test}(")))
        .ok_or_else(|| format!("{name}: {path} has no fn {test}"))?;
    // Attributes directly above the function.
    let attributes: Vec<_> = lines[..found]
        .iter()
        .rev()
        .take_while(|line| line.starts_with("#[") || line.starts_with("//"))
        .collect();
    if !attributes.iter().any(|line| **line == "#[test]") {
        return Err(format!("{name}: fn {test} has no #[test] attribute"));
    }
    if attributes.iter().any(|line| line.starts_with("#[ignore")) {
        return Err(format!("{name}: fn {test} is ignored"));
    }
    Ok(())
}

/// A line of lock-order.txt.
#[derive(Debug, PartialEq, Eq)]
pub struct Lock {
    /// Locks are acquired in ascending rank, never two of the same rank at a time.
    pub rank: u32,
    /// Name of the lock.
    pub name: String,
    /// Path of the file that declares the lock, relative to the root of the tree.
    pub path: String,
    /// Field or static in that file.
    pub symbol: String,
}

/// Fields and statics of a source file that are locks or arrays of locks.
#[must_use]
pub fn declared_locks(text: &str) -> Vec<&str> {
    const TYPES: [&str; 6] =
        ["Mutex<", "Lock,", "Lock ", "ListLock<", "ChannelLock<", "Padded<RemovalLock>"];
    text.lines()
        .filter_map(|line| {
            let line = line.trim_start();
            let line = line.strip_prefix("pub(crate) ").unwrap_or(line);
            let line = line.strip_prefix("pub(super) ").unwrap_or(line);
            let (name, of) = line.strip_prefix("static ").unwrap_or(line).split_once(": ")?;
            let of = of.strip_prefix("Box<").unwrap_or(of);
            let of = of.strip_prefix('[').unwrap_or(of);
            let is_name = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
            (is_name && TYPES.iter().any(|lock| of.starts_with(lock))).then_some(name)
        })
        .collect()
}

/// Parses lock-order.txt: lines of `rank name path::symbol what it guards`. `#` starts a comment.
///
/// # Errors
/// If a line has another form, or ranks decrease.
pub fn lock_order(text: &str) -> Result<Vec<Lock>, String> {
    let mut locks: Vec<Lock> = Vec::new();
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut words = line.split_whitespace();
        let mut parse = || {
            let rank = words.next()?.parse().ok()?;
            let name = words.next()?.to_owned();
            let (path, symbol) = words.next()?.split_once("::")?;
            words.next()?;
            Some(Lock { rank, name, path: path.to_owned(), symbol: symbol.to_owned() })
        };
        let lock = parse()
            .ok_or_else(|| format!("not `rank name path::symbol what it guards`: {line}"))?;
        if locks.last().is_some_and(|last| last.rank > lock.rank) {
            return Err(format!("ranks must rise: {line}"));
        }
        locks.push(lock);
    }
    Ok(locks)
}
