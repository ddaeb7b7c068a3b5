//! `kumi suspend`, `resume`, `cancel`, `priority` and `backtrace`: requests to microprocesses from
//! outside.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

use kumihimo_machine::border::MachineName;
use kumihimo_machine::client::Error;
use kumihimo_machine::handler::{Action, Done, Refused};
use kumihimo_resource::id::Id;
use serde::Serialize;

use crate::ask::machines::{At, FullId, Host, Label, Where};
use crate::ask::{self, One, Reach, Trouble};
use crate::text::{Plain, code, json_line, written};

/// The targets. Each is handled separately. Exit code 1 if some were refused.
#[derive(clap::Args)]
pub struct Of {
    /// Microprocesses by id (12.42.7) or by a unique name (12/worker), also of another machine
    /// (build7/12.42.7); for cancel, also gates and links by id (12.gate.0.1)
    #[arg(required = true, value_name = "ID|SPACE/NAME")]
    pub ids: Vec<At<One>>,
    /// Print one JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub on: Where,
}

/// A machine of the targets, and the connections to its address spaces.
pub struct Steered {
    name: Option<MachineName>,
    /// What lines about it say, if it was named.
    pub label: Option<Label>,
    /// The connections.
    pub reach: Reach,
}

impl Steered {
    /// Whether this is the machine of a target.
    pub fn is_of(&self, one: &At<One>) -> bool {
        self.name == one.machine
    }
}

impl Of {
    /// Returns the machine of a target, whose connections are kept in `known`.
    pub fn machine<'a>(
        &self,
        one: &At<One>,
        known: &'a mut Vec<Steered>,
    ) -> Result<&'a mut Steered, Trouble> {
        let at = match known.iter().position(|steered| steered.is_of(one)) {
            Some(at) => at,
            None => {
                let Host { label, machine } = self.on.of(one).map_err(Trouble::Named)?;
                let name = one.machine.clone();
                known.push(Steered { name, label, reach: Reach::to(machine) });
                known.len() - 1
            }
        };
        Ok(&mut known[at])
    }
}

#[derive(clap::Args)]
pub struct Priority {
    /// From 0, the lowest, to 63
    #[arg(value_parser = clap::value_parser!(u8).range(0..=63))]
    priority: u8,
    #[command(flatten)]
    of: Of,
}

/// `kumi priority N ID...`
pub fn priority(args: Priority) -> Result<ExitCode, String> {
    act(args.of, Action::Priority(args.priority))
}

/// `kumi suspend|resume|cancel ID...`
pub fn act(of: Of, action: Action) -> Result<ExitCode, String> {
    for_each(&of, |reach, one| {
        let (id, space) = reach.find(one)?;
        match space.act(id, action) {
            Ok(done) => Ok((id, Outcome::Done(action, done))),
            Err(e @ (Error::Stopped(_) | Error::Timeout(_))) => Err(Trouble::Named(format!(
                "{}; if the request was received, it may still take effect when the process continues",
                Plain(&e.to_string())
            ))),
            Err(e) => Err(e.into()),
        }
    })
}

/// `kumi backtrace ID...`
pub fn backtrace(of: Of) -> Result<ExitCode, String> {
    for_each(&of, |reach, one| {
        let (id, space) = reach.find(one)?;
        Ok((id, Outcome::Backtrace(space.backtrace(id)?)))
    })
}

/// Result for one target.
enum Outcome {
    Done(Action, Done),
    Backtrace(String),
}

/// The same as JSON.
#[derive(Serialize)]
struct Line<'a> {
    #[serde(flatten)]
    label: Option<&'a Label>,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<Id>,
    /// The target as given.
    of: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    done: Option<Done>,
    #[serde(skip_serializing_if = "Option::is_none")]
    backtrace: Option<&'a str>,
    /// The address space's own refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    refused: Option<&'a Refused>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

fn for_each(
    of: &Of,
    mut what: impl FnMut(&mut Reach, &One) -> Result<(Id, Outcome), Trouble>,
) -> Result<ExitCode, String> {
    // Without a run-time directory, no target has an outcome.
    of.on.check()?;
    let mut known = Vec::new();
    let mut out = io::stdout().lock();
    let mut all = true;
    for one in &of.ids {
        let mut label = None;
        let outcome = of.machine(one, &mut known).and_then(|steered| {
            label.clone_from(&steered.label);
            what(&mut steered.reach, &one.of)
        });
        all &= outcome.is_ok();
        let label = label.as_ref();
        let said = match of.json {
            true => say_json(&mut out, label, one, &outcome),
            false => say(&mut out, label, one, &outcome),
        };
        if let Err(e) = said {
            return written(Err(e));
        }
    }
    Ok(code(all))
}

fn say(
    out: &mut impl Write,
    label: Option<&Label>,
    one: &At<One>,
    outcome: &Result<(Id, Outcome), Trouble>,
) -> io::Result<()> {
    match outcome {
        Ok((id, Outcome::Done(action, done))) => {
            writeln!(out, "{}: {}", Both(label, &one.of, *id), Told(*action, *done))
        }
        Ok((id, Outcome::Backtrace(text))) => {
            writeln!(out, "{}:", Both(label, &one.of, *id))?;
            text.lines().try_for_each(|line| writeln!(out, "{}", Plain(line)))
        }
        Err(trouble) => {
            ask::complain(&format_args!("{one}: {trouble}"));
            Ok(())
        }
    }
}

fn say_json(
    out: &mut impl Write,
    label: Option<&Label>,
    one: &At<One>,
    outcome: &Result<(Id, Outcome), Trouble>,
) -> io::Result<()> {
    let given = match &one.of {
        One::Id(id) => Some(*id),
        One::Name(..) => None,
    };
    let mut line = Line {
        label,
        id: given,
        of: one.to_string(),
        done: None,
        backtrace: None,
        refused: None,
        error: None,
    };
    match outcome {
        Ok((id, outcome)) => {
            line.id = Some(*id);
            match outcome {
                Outcome::Done(_, done) => line.done = Some(*done),
                Outcome::Backtrace(text) => line.backtrace = Some(text),
            }
        }
        Err(trouble) => {
            line.refused = trouble.refused();
            line.error = Some(trouble.to_string());
        }
    }
    json_line(out, &line)
}

/// The target as given, and the ID to which it was resolved.
struct Both<'a>(Option<&'a Label>, &'a One, Id);

impl fmt::Display for Both<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let id = FullId(self.0, self.2);
        match self.1 {
            One::Id(_) => write!(f, "{id}"),
            name @ One::Name(..) => write!(f, "{id} ({name})"),
        }
    }
}

/// The result of a request as a phrase.
pub struct Told(pub Action, pub Done);

impl fmt::Display for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.1) {
            (Action::Suspend, Done::Now) => f.write_str("suspended"),
            (Action::Suspend, Done::Already) => f.write_str("was already suspended"),
            (Action::Suspend, Done::OnReturn) => {
                f.write_str("is blocked in the kernel, and will be suspended when it returns")
            }
            (Action::Suspend, Done::Asked) => f.write_str(
                "suspension requested, but it has not reached a point where it can stop",
            ),
            (Action::Resume, Done::Now) => f.write_str("resumed"),
            (Action::Resume, Done::Already) => f.write_str("was not suspended"),
            (Action::Resume, Done::OnReturn) => {
                f.write_str("is blocked in the kernel, and will continue when it returns")
            }
            (Action::Resume, Done::Asked) => f.write_str(
                "continuation requested, but its virtual processor has not handled the request yet",
            ),
            (Action::Cancel, Done::Now) => f.write_str("cancelled"),
            (Action::Cancel, Done::Already) => f.write_str("was already cancelled"),
            (Action::Cancel, Done::OnReturn) => {
                f.write_str("is blocked in the kernel, and will be cancelled when it returns")
            }
            (Action::Cancel, Done::Asked) => f.write_str(
                "cancellation requested, but it has not reached a point where it can end",
            ),
            (Action::Priority(n), Done::Now) => write!(f, "has priority {n}"),
            (Action::Priority(n), Done::Already) => write!(f, "already had priority {n}"),
            (Action::Priority(n), Done::OnReturn) => {
                write!(f, "is blocked in the kernel, and will have priority {n} when it returns")
            }
            (Action::Priority(n), Done::Asked) => {
                write!(
                    f,
                    "priority {n} requested, but its virtual processor has not handled the request yet"
                )
            }
        }
    }
}
