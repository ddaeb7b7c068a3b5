//! Runs the cases on two file systems and compares them.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Mutex;

use crate::cases::{self, Case};
use crate::differences::Difference;
use crate::trial::Trial;

/// Result of a comparison.
#[derive(Debug)]
pub struct Compared {
    /// Number of cases that ran.
    pub cases: usize,
    /// Number of cases that differ as the table of differences expects.
    pub explained: usize,
    /// Unexpected differences, and expected differences that did not occur.
    pub unexplained: Vec<String>,
}

impl Compared {
    /// Asserts that there is no unexplained difference.
    ///
    /// # Panics
    /// With the unexplained differences.
    pub fn expect_equal(&self, what: &str) {
        let all = self.unexplained.join("\n");
        let (cases, count) = (self.cases, self.unexplained.len());
        assert!(
            self.unexplained.is_empty(),
            "{what}: {count} of {cases} cases differ unexpectedly:\n{all}"
        );
    }
}

/// Number of threads. Large enough that the cases that wait for the next second of a clock wait at
/// the same time.
const AT_ONCE: usize = 24;

/// Runs all cases in `theirs` and in `ours`, both empty directories, and compares the transcripts.
///
/// # Panics
/// If the process does not run as root, or a directory cannot be used.
#[must_use]
pub fn compare(theirs: &Path, ours: &Path, differences: &[&Difference]) -> Compared {
    compare_some(theirs, ours, differences, |_| true)
}

/// As [`compare`], but runs only the cases that `wanted` selects.
///
/// # Panics
/// As [`compare`].
#[must_use]
pub fn compare_some(
    theirs: &Path,
    ours: &Path,
    differences: &[&Difference],
    wanted: impl Fn(&str) -> bool,
) -> Compared {
    let cases: VecDeque<Case> =
        cases::all().into_iter().filter(|case| wanted(&case.name)).collect();
    let (count, left, found) = (cases.len(), Mutex::new(cases), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(case) = left.lock().expect("no case holds it").pop_front() else {
                        break;
                    };
                    let pair = (run(&case, theirs), run(&case, ours));
                    found.lock().expect("no case holds it").push((case.name, pair.0, pair.1));
                }
            });
        }
    });
    let (mut explained, mut unexplained) = (0, Vec::new());
    let mut used = vec![false; differences.len()];
    for (case, theirs, ours) in found.into_inner().expect("all have ended") {
        if theirs == ours {
            continue;
        }
        match unlike(&theirs, &ours)
            .iter()
            .find(|pair| !explain(&case, **pair, differences, &mut used))
        {
            None => explained += 1,
            Some((theirs_line, ours_line)) => unexplained.push(format!(
                "{case}\n  theirs: {theirs_line}\n  ours:   {ours_line}\n{}",
                beside(&theirs, &ours)
            )),
        }
    }
    let unused =
        differences.iter().zip(used).filter(|(difference, used)| !used && wanted(difference.case));
    unexplained.extend(
        unused.map(|(difference, _)| format!("expected difference did not occur: {difference:?}")),
    );
    unexplained.sort();
    Compared { cases: count, explained, unexplained }
}

/// Runs a case in a new directory below `place`, in a kernel thread with its own current directory
/// and umask.
fn run(case: &Case, place: &Path) -> String {
    let directory = place.join(&case.name);
    std::thread::scope(|scope| {
        let body = || {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_FS)
                .expect("a current directory of its own");
            rustix::process::umask(rustix::fs::Mode::empty());
            std::fs::create_dir(&directory)
                .unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
            std::fs::set_permissions(
                &directory,
                std::os::unix::fs::PermissionsExt::from_mode(0o777),
            )
            .expect("chmod");
            rustix::process::chdir(&directory).expect("chdir");
            let mut trial = Trial::new();
            case.run(&mut trial);
            trial.transcript()
        };
        let ran = scope.spawn(body).join();
        ran.unwrap_or_else(|panic| {
            let why = panic.downcast_ref::<String>().cloned();
            format!("panicked: {}\n", why.unwrap_or_default())
        })
    })
}

/// Pairs of lines at the same position that differ.
fn unlike<'a>(theirs: &'a str, ours: &'a str) -> Vec<(&'a str, &'a str)> {
    let (mut a, mut b): (Vec<_>, Vec<_>) = (theirs.lines().collect(), ours.lines().collect());
    let length = a.len().max(b.len());
    a.resize(length, "");
    b.resize(length, "");
    a.into_iter().zip(b).filter(|(a, b)| a != b).collect()
}

fn explain(case: &str, pair: (&str, &str), differences: &[&Difference], used: &mut [bool]) -> bool {
    let is_it =
        |difference: &&Difference| difference.case == case && difference.lines.contains(&pair);
    let found = differences.iter().position(is_it);
    found.inspect(|found| used[*found] = true).is_some()
}

/// Both transcripts side by side, with differing lines marked.
fn beside(theirs: &str, ours: &str) -> String {
    let mut text = String::new();
    let (mut a, mut b) = (theirs.lines(), ours.lines());
    loop {
        let cut = |line: &str| line.chars().take(160).collect::<String>();
        match (a.next(), b.next()) {
            (None, None) => return text,
            (x, y) if x == y => drop(writeln!(text, "      {}", cut(x.unwrap_or_default()))),
            (x, y) => {
                let _ = writeln!(
                    text,
                    "    < {}\n    > {}",
                    cut(x.unwrap_or("nothing")),
                    cut(y.unwrap_or("nothing"))
                );
            }
        }
    }
}
