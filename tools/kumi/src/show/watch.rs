//! `kumi watch`: prints a line for each change of a microprocess's state, until it ends.

use std::io::{self, Write};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use kumihimo_machine::handler::Microprocess;
use kumihimo_resource::id::Id;
use serde::Serialize;

use crate::ask::machines::{FullId, Label};
use crate::ask::{self, Trouble};
use crate::steer::{Of, Steered};
use crate::text::{Name, Plain, code, json_line, written};

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    of: Of,
    /// Time between two queries, in milliseconds; a change that is reverted in between is not seen
    #[arg(long, value_name = "MS", default_value_t = 100, value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    every: u64,
}

/// A watched microprocess.
struct Watched {
    /// Place of its machine among those of the targets.
    machine: usize,
    /// What lines about its machine say, if it was named.
    label: Option<Label>,
    id: Id,
    last: Option<Microprocess>,
    /// The last reason that was printed for a missing reply.
    silent: Option<String>,
    ended: bool,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Line<'a> {
    Is {
        seconds: f64,
        #[serde(flatten)]
        label: Option<&'a Label>,
        #[serde(flatten)]
        microprocess: &'a Microprocess,
    },
    Ended {
        seconds: f64,
        #[serde(flatten)]
        label: Option<&'a Label>,
        id: Id,
        ended: bool,
    },
}

/// Watches the microprocesses. Exit code 1 if some were not found at the start.
pub fn run(args: Args) -> Result<ExitCode, String> {
    args.of.on.check()?;
    let mut known = Vec::new();
    let mut all = true;
    let mut watched: Vec<Watched> = Vec::new();
    for one in &args.of.ids {
        let found = args.of.machine(one, &mut known).and_then(|steered| {
            let (id, space) = steered.reach.find(&one.of)?;
            Ok((steered.label.clone(), space.microprocess(id)?.id))
        });
        let machine = known.iter().position(|steered| steered.is_of(one)).unwrap_or_default();
        match found {
            Ok((_, id)) if watched.iter().any(|w| (w.machine, w.id) == (machine, id)) => {}
            Ok((label, id)) => {
                watched.push(Watched { machine, label, id, last: None, silent: None, ended: false })
            }
            Err(trouble) => {
                ask::complain(&format_args!("{one}: {trouble}"));
                all = false;
            }
        }
    }
    written(until_they_end(&mut known, watched, &args).map(|()| code(all)))
}

fn until_they_end(known: &mut [Steered], mut watched: Vec<Watched>, args: &Args) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let start = Instant::now();
    let every = Duration::from_millis(args.every);
    loop {
        for one in &mut watched {
            let now = known[one.machine]
                .reach
                .space(one.id.location().space())
                .and_then(|space| Ok(space.microprocess(one.id)?));
            let seconds = start.elapsed().as_secs_f64();
            look(&mut out, one, now, seconds, args.of.json)?;
        }
        out.flush()?;
        watched.retain(|one| !one.ended);
        if watched.is_empty() {
            return Ok(());
        }
        thread::sleep(every);
    }
}

/// Prints the changes since the last query.
fn look(
    out: &mut impl Write,
    one: &mut Watched,
    now: Result<Microprocess, Trouble>,
    seconds: f64,
    json: bool,
) -> io::Result<()> {
    let label = one.label.as_ref();
    match now {
        Ok(now) => {
            one.silent = None;
            if one.last.as_ref().is_none_or(|last| !is_same(last, &now)) {
                if json {
                    json_line(out, &Line::Is { seconds, label, microprocess: &now })?;
                } else {
                    writeln!(out, "{seconds:9.3} {}", Row(label, &now))?;
                }
                one.last = Some(now);
            }
        }
        Err(trouble) if trouble.is_end() => {
            one.ended = true;
            if json {
                json_line(out, &Line::Ended { seconds, label, id: one.id, ended: true })?;
            } else {
                writeln!(out, "{seconds:9.3} {} ended", FullId(label, one.id))?;
            }
        }
        // A stopped process may continue: the reason is printed once, and the query is repeated.
        Err(trouble) => {
            let why = trouble.to_string();
            if one.silent.as_ref() != Some(&why) {
                ask::complain(&format_args!("{}: {why}", FullId(label, one.id)));
                one.silent = Some(why);
            }
        }
    }
    Ok(())
}

/// Whether nothing has changed but the holder of the lock that the microprocess waits for, which
/// changes often while the microprocess itself does nothing.
fn is_same(last: &Microprocess, now: &Microprocess) -> bool {
    last == now || *last == Microprocess { holder: last.holder.clone(), ..now.clone() }
}

struct Row<'a>(Option<&'a Label>, &'a Microprocess);

impl std::fmt::Display for Row<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let m = self.1;
        write!(f, "{}", FullId(self.0, m.id))?;
        if let Some(name) = &m.name {
            write!(f, " {}", Name(name))?;
        }
        write!(f, " {}", m.state)?;
        if m.stopping {
            write!(f, ", stopping")?;
        }
        write!(f, ", priority {}", m.priority)?;
        if let Some(lent) = m.inherited {
            write!(f, " ({lent} lent)")?;
        }
        write!(f, ", VP {}", m.vp)?;
        if let Some(tid) = m.kernel_thread {
            write!(f, ", kernel thread {tid}")?;
        }
        if let Some(why) = &m.sticky {
            write!(f, ", sticky: {}", Plain(why))?;
        }
        if let Some(what) = &m.waits_for {
            write!(f, ", waits for {}", Plain(what))?;
            if let Some(holder) = &m.holder {
                write!(f, ", {}", Plain(&holder.to_string()))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use kumihimo_machine::client::Error;
    use kumihimo_machine::handler::{Refused, State};
    use kumihimo_machine::locks::Holder;

    use super::*;

    #[test]
    fn watch_prints_one_line_for_each_change() {
        let mut first = crate::show::ps::example("1.2.3", State::Waiting);
        first.name = Some("worker".to_owned());
        first.waits_for = Some("mutex".to_owned());
        let mut held = first.clone();
        held.holder = Some(Holder::Readers { count: 2 });
        let mut second = first.clone();
        second.state = State::Suspended;
        second.waits_for = None;
        let mut one = Watched {
            machine: 0,
            label: None,
            id: first.id,
            last: None,
            silent: None,
            ended: false,
        };
        let mut out = Vec::new();
        for (seconds, now) in
            [(0.0, &first), (0.1, &held), (0.2, &second), (0.3, &second), (0.4, &held)]
        {
            look(&mut out, &mut one, Ok(now.clone()), seconds, false).unwrap();
        }
        let stale =
            || Err(Trouble::Asked(Error::Refused(Refused::Stale("1.2.3 has ended".to_owned()))));
        look(&mut out, &mut one, stale(), 0.5, false).unwrap();
        assert!(one.ended);
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "    0.000 1.2.3 worker waiting, priority 32, VP 0, waits for mutex\n    \
             0.200 1.2.3 worker suspended, priority 32, VP 0\n    \
             0.400 1.2.3 worker waiting, priority 32, VP 0, waits for mutex, held by 2 readers\n    \
             0.500 1.2.3 ended\n"
        );
        let mut out = Vec::new();
        look(&mut out, &mut one, Ok(second), 0.5, true).unwrap();
        look(&mut out, &mut one, stale(), 0.75, true).unwrap();
        let lines: Vec<serde_json::Value> = String::from_utf8(out)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(
            (&lines[0]["id"], &lines[0]["state"]),
            (&"1.microprocess.2.3".into(), &"suspended".into())
        );
        assert_eq!((&lines[1]["seconds"], &lines[1]["ended"]), (&0.75.into(), &true.into()));
    }
}
