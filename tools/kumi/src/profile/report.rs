//! A profile as text: the functions and stacks that use most, and folded stacks.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::fmt;
use std::io::{self, Write};

use kumihimo_backtrace::symbols::Line;
use kumihimo_machine::handler::Space;
use kumihimo_machine::profile::{ProfileKind, ProfileQuery, Recording};
use kumihimo_runtime::profile::UNKNOWN;

use super::names::Names;
use crate::text::Plain;

/// Numbers of functions and of stacks in a text.
const FUNCTIONS: usize = 20;
const STACKS: usize = 10;
/// Number of frames of a stack in a text.
const FRAMES: usize = 24;
/// Part of the CPU time above which the time that was not sampled is mentioned.
const MENTIONED: f64 = 0.02;

/// A stack with names.
pub(super) struct Resolved {
    /// The lines, innermost first. Never empty.
    lines: Vec<Line>,
    name: String,
    state: String,
    is_cut: bool,
    samples: u64,
    /// Nanoseconds, or the number of microprocesses.
    value: u64,
}

impl Resolved {
    /// Resolves the stacks of a recording, and adds up those that have the same names. The heaviest
    /// one is the first.
    pub(super) fn all(recording: &Recording, names: &mut Names) -> Vec<Resolved> {
        let counts = recording.kind == ProfileKind::Stacks;
        let waits = recording.kind != ProfileKind::Cpu;
        // The lines shown are those of the heaviest stack with these functions.
        let mut stacks: Vec<_> = recording.stacks.iter().collect();
        stacks.sort_by_key(|(_, sums)| Reverse((sums.ns, sums.samples)));
        let mut all: HashMap<(String, String, Vec<String>), Resolved> = HashMap::new();
        for (stack, sums) in stacks {
            let calls = names.calls(&stack.frames, waits);
            let mut lines: Vec<Line> =
                calls.iter().flat_map(|(_, lines)| lines.iter().cloned()).map(plain).collect();
            if lines.is_empty() {
                lines.push(Line { function: UNKNOWN.into(), file: String::new(), line: 0 });
            }
            let functions = lines.iter().map(|line| line.function.clone()).collect();
            let key = (stack.name.clone(), stack.state.clone(), functions);
            let one = all.entry(key).or_insert_with(|| Resolved {
                lines,
                name: Plain(&stack.name).to_string(),
                state: Plain(&stack.state).to_string(),
                is_cut: stack.is_cut && !stack.frames.is_empty(),
                samples: 0,
                value: 0,
            });
            one.samples = one.samples.saturating_add(sums.samples);
            let value = if counts { sums.samples } else { sums.ns };
            one.value = one.value.saturating_add(value);
        }
        let mut all: Vec<Resolved> = all.into_values().collect();
        all.sort_by(|a, b| {
            let text = |one: &Resolved| (one.name.clone(), one.lines[0].function.clone());
            b.value.cmp(&a.value).then_with(|| text(a).cmp(&text(b)))
        });
        all
    }
}

/// Names of another program, made safe for a terminal.
fn plain(line: Line) -> Line {
    let function = match &*line.function {
        "" => "(unknown function)".to_owned(),
        name => Plain(name).to_string(),
    };
    Line { function, file: Plain(&line.file).to_string(), line: line.line }
}

/// Returns the unit of the numbers in folded stacks.
pub(super) fn unit_of_lines(kind: ProfileKind) -> &'static str {
    match kind {
        ProfileKind::Cpu | ProfileKind::OffCpu => "us",
        ProfileKind::Stacks => "microprocesses",
    }
}

/// Returns a line for each stack: its frames from the outermost one on, and its value. The name of
/// the microprocess is below them, and what it waits for above.
pub(super) fn folded(stacks: &[Resolved]) -> Vec<String> {
    let frame = |text: &str| text.replace(';', ":").replace(['\n', '\r'], " ");
    let line = |one: &Resolved| {
        let mut line = if one.name.is_empty() { "(no name)".to_owned() } else { frame(&one.name) };
        if one.is_cut {
            line.push_str(";...");
        }
        for call in one.lines.iter().rev() {
            line.push(';');
            line.push_str(&frame(&call.function));
        }
        if !one.state.is_empty() {
            line.push_str(&format!(";[{}]", frame(&one.state)));
        }
        line
    };
    let counts = stacks.iter().all(|one| one.value == one.samples);
    let mut sums: HashMap<String, u64> = HashMap::new();
    for one in stacks {
        *sums.entry(line(one)).or_default() += if counts { one.value } else { one.value / 1000 };
    }
    let mut lines: Vec<String> =
        sums.into_iter().filter(|(_, n)| *n > 0).map(|(line, n)| format!("{line} {n}")).collect();
    lines.sort_unstable();
    lines
}

/// A value with its unit.
struct Value(ProfileKind, u64);

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match (self.0, self.1) {
            (ProfileKind::Stacks, n) => n.to_string(),
            (_, ns) if ns >= 1_000_000_000 => format!("{:.2} s", ns as f64 / 1e9),
            (_, ns) => format!("{:.1} ms", ns as f64 / 1e6),
        };
        f.pad(&text)
    }
}

/// Returns the sum of a profile in half a sentence.
pub(super) fn summary(recording: &Recording, query: &ProfileQuery) -> String {
    let (total, progress) = (recording.total(), recording.progress);
    let seconds = progress.elapsed_ns as f64 / 1e9;
    let value = Value(query.kind, total.ns);
    match query.kind {
        ProfileKind::Cpu => format!(
            "{value} of CPU time within {seconds:.1} s, {} samples at {} Hz",
            total.samples, query.rate
        ),
        ProfileKind::OffCpu => format!(
            "{value} of waits within {seconds:.1} s, seen {} times at {} Hz",
            total.samples, query.rate
        ),
        ProfileKind::Stacks => format!("{} microprocesses", total.samples),
    }
}

/// Writes the text.
pub(super) fn text(
    out: &mut dyn Write,
    space: &Space,
    query: &ProfileQuery,
    recording: &Recording,
    stacks: &[Resolved],
) -> io::Result<()> {
    let kind = query.kind;
    let total: u64 = stacks.iter().map(|one| one.value).fold(0, u64::saturating_add);
    writeln!(
        out,
        "process {} ({}): {}",
        space.pid,
        Plain(&space.program),
        summary(recording, query)
    )?;
    remarks(out, query, recording)?;
    functions(out, kind, total, stacks)?;
    writeln!(out)?;
    for one in stacks.iter().take(STACKS) {
        let share = percent(one.value, total);
        write!(out, "{} {share:.1} %", Value(kind, one.value))?;
        if !one.name.is_empty() {
            write!(out, "  {}", one.name)?;
        }
        match (kind, &*one.state) {
            (_, "") => {}
            (ProfileKind::OffCpu, state) => write!(out, "  waits for: {state}")?,
            (_, state) => write!(out, "  {state}")?,
        }
        writeln!(out)?;
        for line in one.lines.iter().take(FRAMES) {
            writeln!(out, "    {}", line.function)?;
            if !line.file.is_empty() {
                writeln!(out, "        at {}:{}", line.file, line.line)?;
            }
        }
        if one.lines.len() > FRAMES {
            writeln!(out, "    ... {} further calls", one.lines.len() - FRAMES)?;
        }
        if one.is_cut {
            writeln!(out, "    ... and frames that cannot be unwound")?;
        }
    }
    match stacks.len().saturating_sub(STACKS) {
        0 => Ok(()),
        more => writeln!(out, "... and {more} further stacks (--format folded shows all)"),
    }
}

/// Writes how exact the profile is, and what it cost.
fn remarks(out: &mut dyn Write, query: &ProfileQuery, recording: &Recording) -> io::Result<()> {
    let (total, progress) = (recording.total(), recording.progress);
    if query.kind == ProfileKind::Cpu {
        // Twice the largest standard error of a share, that of one half.
        let error = 100.0 / (total.samples.max(1) as f64).sqrt();
        writeln!(out, "shares are exact to {error:.1} points in 95 % of profiles")?;
        let used = progress.process_cpu_ns.saturating_sub(progress.profiler_cpu_ns);
        let missing = used.saturating_sub(total.ns);
        if missing as f64 > used as f64 * MENTIONED {
            writeln!(
                out,
                "{} of the process's CPU time was not sampled: kernel threads of its own, and the time since each thread's last sample",
                Value(query.kind, missing)
            )?;
        }
    }
    if query.kind != ProfileKind::Stacks {
        writeln!(
            out,
            "the profiler used {}, {:.2} % of the process's CPU time",
            Value(query.kind, progress.profiler_cpu_ns),
            percent(progress.profiler_cpu_ns, progress.process_cpu_ns)
        )?;
    }
    if progress.lost > 0 {
        writeln!(
            out,
            "{} samples were lost; the next samples of their kernel threads have their weight",
            progress.lost
        )?;
    }
    Ok(())
}

/// Writes the functions by what they use themselves.
fn functions(
    out: &mut dyn Write,
    kind: ProfileKind,
    total: u64,
    stacks: &[Resolved],
) -> io::Result<()> {
    let mut sums: HashMap<&str, (u64, u64)> = HashMap::new();
    for one in stacks {
        sums.entry(&one.lines[0].function).or_default().0 += one.value;
        // A recursive function counts once.
        let called: HashSet<&str> = one.lines.iter().map(|line| &*line.function).collect();
        for function in called {
            sums.entry(function).or_default().1 += one.value;
        }
    }
    let mut sums: Vec<(&str, (u64, u64))> = sums.into_iter().collect();
    sums.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(b.0)));
    writeln!(out, "\n{:>10} {:>7} {:>10} {:>7}  FUNCTION", "ITSELF", "", "WITH CALLS", "")?;
    for (function, (own, with)) in sums.iter().take(FUNCTIONS) {
        writeln!(
            out,
            "{:>10} {:>5.1} % {:>10} {:>5.1} %  {function}",
            Value(kind, *own),
            percent(*own, total),
            Value(kind, *with),
            percent(*with, total),
        )?;
    }
    match sums.len().saturating_sub(FUNCTIONS) {
        0 => Ok(()),
        more => writeln!(out, "... and {more} further functions"),
    }
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(functions: &[&str], value: u64) -> Resolved {
        let line = |name: &&str| Line { function: (*name).into(), file: String::new(), line: 1 };
        Resolved {
            lines: functions.iter().map(line).collect(),
            name: String::new(),
            state: String::new(),
            is_cut: false,
            samples: 1,
            value,
        }
    }

    #[test]
    fn folded_stack_begins_with_the_outermost_frame() {
        let mut waits = stack(&["lock", "work"], 5_000);
        waits.name = "worker".into();
        waits.state = "mutex".into();
        let mut cut = stack(&["a;b", "c"], 7_000);
        cut.is_cut = true;
        assert_eq!(
            folded(&[waits, cut, stack(&["x"], 999)]),
            ["(no name);...;c;a:b 7", "worker;work;lock;[mutex] 5"]
        );
    }

    #[test]
    fn recursive_function_counts_once_with_its_calls() {
        let mut out = Vec::new();
        let stacks = [
            stack(&["leaf", "f", "f", "main"], 3_000_000_000),
            stack(&["f", "main"], 1_000_000_000),
        ];
        functions(&mut out, ProfileKind::Cpu, 4_000_000_000, &stacks).unwrap();
        let text = String::from_utf8(out).unwrap();
        let line = |of: &str| text.lines().find(|line| line.ends_with(of)).unwrap();
        assert_eq!(line("leaf").split_whitespace().next(), Some("3.00"));
        let f: Vec<&str> = line("  f").split_whitespace().collect();
        assert_eq!(f, ["1.00", "s", "25.0", "%", "4.00", "s", "100.0", "%", "f"]);
    }

    #[test]
    fn names_of_the_program_cannot_steer_the_terminal() {
        let line = plain(Line { function: "\x1b[2Jf".into(), file: "a\nb".into(), line: 1 });
        assert_eq!((&*line.function, &*line.file), ("\\u{1b}[2Jf", "a\\nb"));
    }
}
