//! `kumi board`: the address spaces that share the cores, the rules, and violations of the
//! protocol.
//!
//! The command reads the board itself, because dead or stopped processes reply to no request. The
//! command takes no seat at the board, so opening it does no harm.

use std::fmt::{self, Display};
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use kumihimo_arbiter::board::Board;
use kumihimo_arbiter::board::Error;
use kumihimo_arbiter::board::overrides::Offender;
use kumihimo_arbiter::feedback::Rule;
use kumihimo_arbiter::view::{CoreView, RankedVp, SpaceView, View};
use kumihimo_machine::client::Machine;

use crate::ask::Whose;
use crate::text::{Name, Plain, code, put, table, written};

#[derive(clap::Args)]
pub struct Args {
    /// Set the rule for all present and future address spaces at the board: off, on, or
    /// TIME,LEVELS, for example 40ms,8: a VP that uses 40 ms of CPU time without waiting is lowered
    /// by one level, and again for each further 40 ms, by eight levels at most; a VP that waits
    /// rises again
    #[arg(long, value_name = "on|off|TIME,LEVELS", value_parser = feedback)]
    feedback: Option<Feedback>,
    #[command(flatten)]
    whose: Whose,
}

/// A feedback rule, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Feedback(Option<Rule>);

fn feedback(text: &str) -> Result<Feedback, String> {
    if text == "off" {
        return Ok(Feedback(None));
    }
    text.parse().map(|rule| Feedback(Some(rule))).map_err(|refused| format!("{refused}; or off"))
}

impl Display for Feedback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(rule) => write!(f, "{rule}"),
            None => f.write_str("off"),
        }
    }
}

/// Contents of a board at one moment.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The living address spaces.
    pub spaces: Vec<SpaceView>,
    /// Violations of the protocol, the latest first.
    pub offenders: Vec<Offender>,
    cores: Vec<CoreView>,
    feedback: Option<Rule>,
}

impl Seen {
    /// Reads the board at `path`. Returns `None` if there is none yet.
    ///
    /// # Errors
    /// If the file at `path` is not a readable board.
    pub fn at(path: &std::path::Path) -> Result<Option<Seen>, Error> {
        let view = match View::open(path) {
            Err(Error::Io(_, e)) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
            view => view?,
        };
        Ok(Some(Seen {
            spaces: view.spaces(),
            offenders: view.offenders(),
            cores: view.cores(),
            feedback: view.feedback(),
        }))
    }

    /// One-line summary: `2 address spaces there: worker (pid 12), hog (pid 13); feedback off`
    pub fn told(&self) -> String {
        let names: Vec<String> = self.spaces.iter().map(who).collect();
        let many = match names.len() {
            0 => "no address spaces there".to_owned(),
            1 => format!("1 address space there: {}", names[0]),
            n => format!("{n} address spaces there: {}", names.join(", ")),
        };
        format!("{many}; feedback {}", Feedback(self.feedback))
    }
}

fn who(space: &SpaceView) -> String {
    format!("{} (pid {})", Name(&space.name), space.pid)
}

/// Path of the board of a run-time directory's address spaces.
///
/// # Errors
/// Reason why they have none.
pub fn path(machine: &Machine) -> Result<PathBuf, String> {
    kumihimo_runtime::board::path_in(|| Ok(machine.path().to_owned()))
}

/// Description of a violation: `hog (pid 13) did not answer, or did not leave its core, 3 times, 12
/// s ago`
pub fn offence(one: &Offender) -> String {
    let times = if one.times > 1 { format!(", {} times", one.times) } else { String::new() };
    format!("{} (pid {}) {}{times}, {}", Name(&one.name), one.pid, one.reason, Ago(one.ago))
}

struct Ago(Duration);

impl Display for Ago {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            0 | 1 => f.write_str("just now"),
            s @ 2..120 => write!(f, "{s} s ago"),
            s @ 120..7200 => write!(f, "{} min ago", s / 60),
            s => write!(f, "{} h ago", s / 3600),
        }
    }
}

/// Sets the rule if one is given, and shows the board.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let path = path(&args.whose.machine()?)?;
    if let Some(Feedback(rule)) = args.feedback {
        Board::open(&path).map_err(|e| e.to_string())?.set_feedback(rule);
    }
    let seen = Seen::at(&path).map_err(|e| e.to_string())?;
    let mut out = BufWriter::new(io::stdout().lock());
    let shown = match &seen {
        None => writeln!(
            out,
            "board {}: none yet: the first program that starts creates it",
            path.display()
        ),
        Some(seen) => writeln!(out, "board {}: {}", path.display(), seen.told())
            .and_then(|()| show(&mut out, seen)),
    };
    written(shown.and_then(|()| out.flush()).map(|()| code(true)))
}

fn show(out: &mut impl Write, seen: &Seen) -> io::Result<()> {
    if !seen.spaces.is_empty() {
        writeln!(out)?;
        let heads = ["PID", "NAME", "VPS", "CPU-TIME", "SHARE", "LEVELS-DOWN", "OVERRIDDEN"];
        table(out, heads, &seen.spaces, |space, column, cell| match column {
            0 => put(cell, space.pid),
            1 => put(cell, Name(&space.name)),
            2 => put(cell, space.vps),
            3 => put(cell, format_args!("{:.3} s", space.used.as_secs_f64())),
            4 => match space.share {
                Some(share) => put(cell, share),
                None => cell.push('-'),
            },
            5 => put(cell, space.sunk),
            _ => put(cell, space.overridden),
        })?;
    }
    if !seen.cores.is_empty() {
        writeln!(out)?;
        table(out, ["CORE", "HELD-BY", "WAITED-FOR-BY"], &seen.cores, |core, column, cell| {
            match column {
                0 => put(cell, core.core),
                1 => match &core.holder {
                    Some(stand) => put(cell, seen.stand(stand)),
                    None => cell.push('-'),
                },
                _ => {
                    let waiting: Vec<String> =
                        core.waiting.iter().map(|stand| seen.stand(stand)).collect();
                    put(cell, waiting.join("; "));
                }
            }
        })?;
    }
    if !seen.offenders.is_empty() {
        writeln!(out)?;
        seen.offenders.iter().try_for_each(|one| writeln!(out, "{}", Plain(&offence(one))))?;
    }
    Ok(())
}

impl Seen {
    /// Description of a VP's rank: `hog (pid 13), level 32`
    fn stand(&self, stand: &RankedVp) -> String {
        let space = self.spaces.iter().find(|space| space.row == stand.row);
        let level = stand
            .level
            .map_or_else(|| "share used up".to_owned(), |level| format!("level {level}"));
        format!("{}, {level}", space.map_or_else(|| "an unknown one".to_owned(), who))
    }
}

/// A board for tests of its display.
#[cfg(test)]
pub fn example() -> Seen {
    use kumihimo_arbiter::board::overrides::Reason;

    let space = |row, name: &str| SpaceView {
        row,
        pid: 100 + u32::from(row),
        name: name.to_owned(),
        vps: 2,
        started: Duration::ZERO,
        used: Duration::from_millis(1_250),
        share: None,
        sunk: 0,
        overridden: 0,
        reason: None,
    };
    let mut hog = space(3, "hog");
    (hog.share, hog.sunk, hog.overridden) = ("50%,hard".parse().ok(), 2, 1);
    let stand = |row, level| RankedVp { row, vp: 0, level };
    Seen {
        spaces: vec![space(0, "a\u{202e}b"), hog],
        offenders: vec![Offender {
            pid: 99,
            name: "gone".to_owned(),
            reason: Reason::Dead,
            times: 3,
            ago: Duration::from_secs(61),
        }],
        cores: vec![CoreView {
            core: 1,
            holder: Some(stand(0, Some(30))),
            waiting: vec![stand(3, None), stand(9, Some(1))],
        }],
        feedback: Some(Rule::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn board_is_shown_in_full_with_escaped_names() {
        let mut out = Vec::new();
        show(&mut out, &example()).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "\nPID  NAME        VPS  CPU-TIME  SHARE     LEVELS-DOWN  OVERRIDDEN\n\
             100  a\\u{202e}b  2    1.250 s   -         0            0\n\
             103  hog         2    1.250 s   50%,hard  2            1\n\
             \nCORE  HELD-BY                         WAITED-FOR-BY\n\
             1     a\\u{202e}b (pid 100), level 30  hog (pid 103), share used up; an unknown one, level 1\n\
             \ngone (pid 99) ended while it held a core, 3 times, 61 s ago\n"
        );
        assert_eq!(
            example().told(),
            "2 address spaces there: a\\u{202e}b (pid 100), hog (pid 103); feedback 40ms,8"
        );
    }

    #[test]
    fn rules_are_parsed_and_others_refused() {
        assert_eq!(feedback("off"), Ok(Feedback(None)));
        assert_eq!(feedback("on"), Ok(Feedback(Some(Rule::default()))));
        let refused = feedback("often").expect_err("no rule");
        assert!(refused.contains("TIME,LEVELS") && refused.ends_with("or off"), "{refused}");
    }
}
