//! `kumi locks`: locks with their holders and waiters, and microprocesses that wait for each other.

use std::collections::BTreeSet;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use kumihimo_machine::client::Neighbour;
use kumihimo_machine::handler::Space;
use kumihimo_machine::locks::{Chain, Holder, Lock, LockTotals, LockWaiter, Locks, MOST_LOCKS};
use kumihimo_resource::id::Id;
use serde::Serialize;

use crate::ask::machines::{At, Found, Label, Labelled, Where};
use crate::ask::{self, Place, Trouble};
use crate::show::ps;
use crate::text::{Name, Plain, code, duration, json_line, put, short, table, written};

#[derive(clap::Args)]
pub struct Args {
    /// Address spaces (12) or process IDs, also of another machine (build7/12); all of the user's
    /// by default
    #[arg(value_name = "SPACE|PID")]
    of: Vec<At<Place>>,
    /// Number of locks, and of chains, of each address space
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST_LOCKS)))]
    limit: u32,
    /// Show the stacks of the holders, of the waiters that have waited longest, and of the members
    /// of chains
    #[arg(long)]
    backtraces: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    on: Where,
}

/// The answer of one address space.
struct Seen {
    /// Its machine, if one was named.
    label: Option<Label>,
    space: Space,
    locks: Locks,
    /// Stacks, or why there is none.
    backtraces: Vec<(Id, Result<String, String>)>,
}

/// A line of `--json`.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Line<'a> {
    Space {
        #[serde(flatten)]
        space: &'a Space,
        #[serde(flatten)]
        totals: &'a LockTotals,
    },
    Lock {
        space: u16,
        #[serde(flatten)]
        lock: &'a Lock,
    },
    Chain {
        space: u16,
        #[serde(flatten)]
        chain: &'a Chain,
    },
    Backtrace {
        id: Id,
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<&'a str>,
    },
}

/// Prints the locks. Exit code 1 if some address space did not answer.
pub fn run(args: &Args) -> Result<ExitCode, String> {
    let (found, mut whole) = args.on.spaces(&args.of)?;
    let asked = ask::each(found, |Found { label, place, neighbour }| {
        look(neighbour, *place, args).map(|seen| Seen { label: label.clone(), ..seen })
    });
    let (seen, have_all_answered) = ask::answers(asked);
    whole &= have_all_answered;
    if seen.is_empty() && args.of.is_empty() && whole {
        ask::complain_of_none();
    }
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    written(show(&mut out, &seen, args.json).and_then(|()| out.flush()).map(|()| code(whole)))
}

/// Number of locks in a [`sample`].
const SAMPLED: u32 = 8;

/// Writes the locks of an address space that have the most waiters, with all stacks, as lines of
/// JSON. An address space without waiters has a line, too.
///
/// # Errors
/// Why there is no answer, or the error of writing.
pub fn sample(neighbour: &mut Neighbour, out: &mut impl Write) -> Result<(), String> {
    let seen = read(neighbour, None, SAMPLED, true).map_err(|trouble| trouble.to_string())?;
    show_json(out, &seen).map_err(|e| e.to_string())
}

fn look(neighbour: &mut Neighbour, place: Place, args: &Args) -> Result<Seen, Trouble> {
    read(neighbour, Some(place), args.limit, args.backtraces)
}

fn read(
    neighbour: &mut Neighbour,
    place: Option<Place>,
    limit: u32,
    backtraces: bool,
) -> Result<Seen, Trouble> {
    let space = match place {
        Some(place) => ask::space_at(neighbour, place)?,
        None => neighbour.space()?,
    };
    let locks = neighbour.locks(limit)?;
    let wanted = if backtraces { concerned(&locks) } else { BTreeSet::new() };
    // A microprocess that has ended meanwhile has no stack, which is no failure of the command.
    let backtraces = wanted
        .into_iter()
        .map(|id| (id, neighbour.backtrace(id).map_err(|e| e.to_string())))
        .collect();
    Ok(Seen { label: None, space, locks, backtraces })
}

/// Returns the microprocesses whose stacks explain the report.
fn concerned(locks: &Locks) -> BTreeSet<Id> {
    let holder = |lock: &Lock| match &lock.holder {
        Holder::Microprocess { id, .. } => Some(*id),
        _ => None,
    };
    let waiters = locks.locks.iter().flat_map(|lock| lock.first.iter().map(|waiter| waiter.id));
    let members = locks.chains.iter().flat_map(|chain| chain.links.iter().filter_map(|l| l.id));
    locks.locks.iter().filter_map(holder).chain(waiters).chain(members).collect()
}

fn show(out: &mut impl Write, seen: &[Seen], json: bool) -> io::Result<()> {
    for (nth, seen) in seen.iter().enumerate() {
        if json {
            show_json(out, seen)?;
            continue;
        }
        if nth > 0 {
            writeln!(out)?;
        }
        ps::show_space(out, seen.label.as_ref(), &seen.space, &[])?;
        show_locks(out, &seen.locks)?;
        for (id, backtrace) in &seen.backtraces {
            writeln!(out)?;
            match backtrace {
                Ok(text) => text.lines().try_for_each(|line| writeln!(out, "{}", Plain(line)))?,
                Err(why) => writeln!(out, "{}: no stack: {}", short(*id), Plain(why))?,
            }
        }
    }
    Ok(())
}

fn show_json(out: &mut impl Write, seen: &Seen) -> io::Result<()> {
    let space = seen.space.id.location().space();
    let label = seen.label.as_ref();
    let mut line = |line: &Line<'_>| json_line(out, &Labelled::new(label, line));
    line(&Line::Space { space: &seen.space, totals: &seen.locks.totals })?;
    seen.locks.locks.iter().try_for_each(|lock| line(&Line::Lock { space, lock }))?;
    seen.locks.chains.iter().try_for_each(|chain| line(&Line::Chain { space, chain }))?;
    seen.backtraces.iter().try_for_each(|(id, backtrace)| {
        let (text, error) = (backtrace.as_ref().ok(), backtrace.as_ref().err());
        let (text, error) = (text.map(String::as_str), error.map(String::as_str));
        line(&Line::Backtrace { id: *id, text, error })
    })
}

fn show_locks(out: &mut impl Write, locks: &Locks) -> io::Result<()> {
    let LockTotals { waiters, locks: number, chains, cycles } = locks.totals;
    let of = |n: u64, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    write!(out, "{} for {}", of(waiters, "waiter"), of(number, "lock"))?;
    if chains > 0 {
        write!(out, ", {}", of(chains, "chain"))?;
    }
    if cycles > 0 {
        write!(out, ", {}", of(cycles, "deadlock"))?;
    }
    writeln!(out)?;
    if !locks.locks.is_empty() {
        let heads = ["LOCK", "HOLDER", "WAITERS", "LONGEST", "FIRST-WAITER", "HOLDER-DOES"];
        table(out, heads, &locks.locks, cell)?;
    }
    for chain in &locks.chains {
        let what = if chain.is_cycle { "deadlock" } else { "chain" };
        write!(out, "{what}: {}", Plain(&chain.to_string()))?;
        match chain.others {
            0 => writeln!(out)?,
            n => writeln!(out, " (and {n} more behind the first)")?,
        }
    }
    Ok(())
}

fn cell(lock: &Lock, column: usize, cell: &mut String) {
    match column {
        0 => put(cell, format_args!("{} at {:#x}", Name(&lock.kind), lock.address)),
        1 => {
            let text = lock.holder.to_string();
            let who = ["held by ", "holder "].iter().find_map(|before| text.strip_prefix(before));
            put(cell, Name(who.unwrap_or(&text)));
        }
        2 => put(cell, lock.waiters),
        3 => cell.push_str(&duration(lock.longest_ns)),
        4 => match lock.first.first() {
            Some(LockWaiter { id, name, .. }) => {
                put(cell, short(*id));
                if let Some(name) = name {
                    put(cell, format_args!(" ({})", Name(name)));
                }
            }
            None => cell.push('-'),
        },
        _ => put(cell, Plain(lock.holder_does.as_deref().unwrap_or(""))),
    }
}

#[cfg(test)]
mod tests {
    use kumihimo_machine::locks::{Because, Link};

    use super::*;

    fn lock(kind: &str, holder: Holder) -> Lock {
        Lock {
            kind: kind.to_owned(),
            address: 0x1f40,
            holder,
            holder_does: None,
            waiters: 3,
            longest_ns: 2_500_000_000,
            first: Vec::new(),
        }
    }

    fn id(text: &str) -> Id {
        text.parse().expect("an ID")
    }

    fn locks() -> Locks {
        let mut held = lock(
            "mutex",
            Holder::Microprocess { id: id("1.4.1"), name: Some("b\x1b[31m".to_owned()) },
        );
        held.holder_does = Some("waits for the clock".to_owned());
        held.first = vec![LockWaiter {
            id: id("1.3.1"),
            name: Some("a".to_owned()),
            waiting_ns: 2_500_000_000,
            is_timed: false,
        }];
        let link = |at: &str, name: &str| Link {
            id: Some(id(at)),
            name: Some(name.to_owned()),
            kernel_thread: None,
            does: "waits for the mutex at 0x10".to_owned(),
            waiting_ns: Some(1),
            is_timed: false,
            because: Because::Holds,
        };
        Locks {
            totals: LockTotals { waiters: 4, locks: 2, chains: 1, cycles: 1 },
            locks: vec![held, lock("semaphore", Holder::Unknown)],
            chains: vec![
                Chain {
                    is_cycle: true,
                    links: vec![link("1.5.1", "c"), link("1.6.1", "d\n")],
                    others: 0,
                },
                Chain { is_cycle: false, links: vec![link("1.7.1", "e")], others: 2 },
            ],
        }
    }

    #[test]
    fn locks_are_formatted() {
        let mut out = Vec::new();
        show_locks(&mut out, &locks()).expect("memory");
        assert_eq!(
            String::from_utf8(out).expect("text"),
            "4 waiters for 2 locks, 1 chain, 1 deadlock\n\
             LOCK                 HOLDER               WAITERS  LONGEST  FIRST-WAITER  HOLDER-DOES\n\
             mutex at 0x1f40      1.4.1 (b\\u{1b}[31m)  3        2.5s     1.3.1 (a)     waits for the clock\n\
             semaphore at 0x1f40  unknown              3        2.5s     -\n\
             deadlock: 1.5.1 (c) waits for the mutex at 0x10, held by 1.6.1 (d\\n), which waits for the mutex at 0x10, held by 1.5.1 (c)\n\
             chain: 1.7.1 (e) waits for the mutex at 0x10 (and 2 more behind the first)\n"
        );
    }

    #[test]
    fn stacks_are_those_of_holders_waiters_and_members() {
        let want = ["1.3.1", "1.4.1", "1.5.1", "1.6.1", "1.7.1"].map(id);
        assert_eq!(concerned(&locks()).into_iter().collect::<Vec<_>>(), want);
        assert!(concerned(&Locks::default()).is_empty());
    }

    #[test]
    fn json_lines_have_a_stable_form() {
        let locks = locks();
        let keys = |line: &Line<'_>, of: &str| -> Vec<String> {
            let json = serde_json::to_value(line).expect("JSON");
            let mut keys: Vec<_> =
                json[of].as_object().expect("an object").keys().cloned().collect();
            keys.sort();
            keys
        };
        let line = Line::Lock { space: 1, lock: &locks.locks[0] };
        let want =
            ["address", "first", "holder", "holder_does", "kind", "longest_ns", "space", "waiters"];
        assert_eq!(keys(&line, "lock"), want);
        let line = Line::Chain { space: 1, chain: &locks.chains[0] };
        assert_eq!(keys(&line, "chain"), ["is_cycle", "links", "others", "space"]);
    }
}
