//! `kumi ps`: the microprocesses of the machine.

use std::io::{self, BufWriter, Write};

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use kumihimo_machine::client::Neighbour;
use kumihimo_machine::handler::{Microprocess, Space, State};
use kumihimo_machine::locks::Holder;

use crate::ask::machines::{At, FullId, Host, Label, Labelled, Prefix, Where};
use crate::ask::{self, One, Place, Target, Trouble};
use crate::text::{Name, Plain, code, json_line, put, short, table, written};

#[derive(clap::Args)]
pub struct Args {
    /// Address spaces (12) or process IDs, microprocesses (12.42.7) or names (12/worker), also of
    /// another machine (build7/12.42.7); everything of the user's by default
    #[arg(value_name = "SPACE|PID|ID|SPACE/NAME")]
    of: Vec<At<Target>>,
    /// Show address spaces only
    #[arg(long, conflicts_with_all = ["state", "sort"])]
    spaces: bool,
    /// Sort key within an address space; priorities sort from the highest down
    #[arg(long, value_name = "KEY", default_value = "id")]
    sort: Key,
    /// Show only microprocesses in this state; separate several by commas
    #[arg(long, value_delimiter = ',', value_parser = states())]
    state: Vec<State>,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    on: Where,
}

/// Sort keys of microprocesses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Key {
    Id,
    Name,
    State,
    Priority,
    Vp,
    Thread,
    WaitsFor,
}

impl Key {
    /// Sorts the rows. Rows with equal keys keep the order of their IDs.
    pub fn sort(self, rows: &mut [Microprocess]) {
        rows.sort_by_key(|m| m.id);
        match self {
            Key::Id => {}
            Key::Name => rows.sort_by(|a, b| a.name.cmp(&b.name)),
            Key::State => rows.sort_by_key(|m| m.state),
            Key::Priority => rows.sort_by_key(|m| {
                std::cmp::Reverse(m.inherited.unwrap_or(m.priority).max(m.priority))
            }),
            Key::Vp => rows.sort_by_key(|m| m.vp),
            Key::Thread => rows.sort_by_key(|m| (m.kernel_thread.is_none(), m.kernel_thread)),
            Key::WaitsFor => rows.sort_by(|a, b| {
                (a.waits_for.is_none(), &a.waits_for).cmp(&(b.waits_for.is_none(), &b.waits_for))
            }),
        }
    }
}

/// All states in the order of display.
pub const STATES: [State; 5] =
    [State::Running, State::Runnable, State::Waiting, State::Blocked, State::Suspended];

fn states() -> impl TypedValueParser<Value = State> {
    PossibleValuesParser::new(["running", "runnable", "waiting", "blocked", "suspended"])
        .map(|text| *STATES.iter().find(|state| state.to_string() == text).expect("one of them"))
}

/// The selected rows of one address space.
#[derive(Clone)]
struct Wanted {
    place: Place,
    all: bool,
    some: Vec<One>,
}

/// The reply of one address space.
struct Seen {
    /// Its machine, if one was named.
    label: Option<Label>,
    space: Space,
    rows: Vec<Microprocess>,
    troubles: Vec<Trouble>,
}

/// Prints the rows. Exit code 1 if some could not be obtained.
pub fn run(args: Args) -> Result<std::process::ExitCode, String> {
    let (hosts, mut whole) = args.on.hosts(&args.of)?;
    let (mut found, is_one) = (Vec::new(), hosts.len() == 1);
    for (Host { label, machine }, of) in hosts {
        let wanted = by_space(&of);
        let places: Vec<Place> = wanted.iter().map(|w| w.place).collect();
        let (there, has_all) = match ask::neighbours(&machine, &places) {
            Err(why) if is_one => return Err(why),
            Err(why) => {
                ask::complain(&why);
                (Vec::new(), false)
            }
            Ok(there) => there,
        };
        whole &= has_all;
        found.extend(there.into_iter().map(|(place, neighbour)| {
            let all = Wanted { place, all: true, some: Vec::new() };
            let wanted = wanted.iter().find(|w| w.place == place).cloned();
            (label.clone(), wanted.unwrap_or(all), neighbour)
        }));
    }
    let asked = ask::each(found, |(label, wanted, neighbour)| {
        look(neighbour, wanted, &args).map(|seen| Seen { label: label.clone(), ..seen })
    });
    let (seen, have_all_answered) = ask::answers(asked);
    let troubles = || seen.iter().flat_map(|one| &one.troubles);
    troubles().for_each(ask::complain);
    whole &= have_all_answered && troubles().next().is_none();
    if seen.is_empty() && args.of.is_empty() && whole {
        ask::complain_of_none();
    }
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    written(show(&mut out, &seen, &args).and_then(|()| out.flush()).map(|()| code(whole)))
}

/// Groups the targets by address space. A whole address space includes its microprocesses.
fn by_space(of: &[Target]) -> Vec<Wanted> {
    let mut wanted: Vec<Wanted> = Vec::new();
    for target in of {
        let place = match target {
            Target::Space(place) => *place,
            Target::One(One::Id(id)) => Place::of(id.location().space()),
            Target::One(One::Name(number, _)) => Place::of(*number),
        };
        let at = wanted.iter().position(|w| w.place.is_same(place)).unwrap_or_else(|| {
            wanted.push(Wanted { place, all: false, some: Vec::new() });
            wanted.len() - 1
        });
        match target {
            Target::Space(_) => (wanted[at].all, wanted[at].place) = (true, place),
            Target::One(one) => wanted[at].some.push(one.clone()),
        }
    }
    wanted.sort_by_key(|w| w.place.number);
    wanted
}

fn look(neighbour: &mut Neighbour, wanted: &Wanted, args: &Args) -> Result<Seen, Trouble> {
    let space = ask::space_at(neighbour, wanted.place)?;
    let mut seen = Seen { label: None, space, rows: Vec::new(), troubles: Vec::new() };
    if args.spaces {
        return Ok(seen);
    }
    let by_name = wanted.some.iter().any(|one| matches!(one, One::Name(..)));
    let mut listed = if wanted.all || by_name { neighbour.microprocesses()? } else { Vec::new() };
    for one in &wanted.some {
        match one {
            One::Id(id) => match neighbour.microprocess(*id) {
                Ok(row) => seen.rows.push(row),
                Err(error) => seen.troubles.push(error.into()),
            },
            One::Name(number, name) => {
                let before = seen.rows.len();
                seen.rows.extend(ask::of_name(&listed, name).cloned());
                if seen.rows.len() == before {
                    seen.troubles.push(ask::nobody(*number, name));
                }
            }
        }
    }
    if wanted.all {
        std::mem::swap(&mut seen.rows, &mut listed);
    }
    if !args.state.is_empty() {
        seen.rows.retain(|row| args.state.contains(&row.state));
    }
    args.sort.sort(&mut seen.rows);
    seen.rows.dedup_by_key(|row| row.id);
    Ok(seen)
}

fn show(out: &mut impl Write, seen: &[Seen], args: &Args) -> io::Result<()> {
    match (args.spaces, args.json) {
        (true, true) => seen
            .iter()
            .try_for_each(|seen| json_line(out, &Labelled::new(seen.label.as_ref(), &seen.space))),
        (false, true) => seen.iter().try_for_each(|seen| {
            let label = seen.label.as_ref();
            seen.rows.iter().try_for_each(|row| json_line(out, &Labelled::new(label, row)))
        }),
        (true, false) if seen.is_empty() => Ok(()),
        (true, false) => show_spaces(out, seen),
        (false, false) => {
            for (nth, seen) in seen.iter().enumerate() {
                if nth > 0 {
                    writeln!(out)?;
                }
                show_space(out, seen.label.as_ref(), &seen.space, &seen.rows)?;
            }
            Ok(())
        }
    }
}

/// Prints an address space and its microprocesses for people.
pub fn show_space(
    out: &mut impl Write,
    label: Option<&Label>,
    space: &Space,
    rows: &[Microprocess],
) -> io::Result<()> {
    writeln!(out, "{}{}", Prefix(label), heading(space))?;
    if rows.is_empty() { Ok(()) } else { show_rows(out, label, rows) }
}

/// The heading of an address space: `12: pid 4711, 2 VPs, 3 microprocesses: /usr/bin/program`
fn heading(space: &Space) -> String {
    let vps = match space.vps {
        0 => "no runtime now".to_owned(),
        1 => "1 VP".to_owned(),
        n => format!("{n} VPs"),
    };
    let living = if space.living == 1 {
        "1 microprocess".to_owned()
    } else {
        format!("{} microprocesses", space.living)
    };
    let threads = kernel_threads(space)
        .map_or_else(String::new, |threads| format!(", {threads} kernel threads"));
    let number = space.id.location().space();
    let mode = match &space.why {
        Some(why) => format!(", which are kernel threads 1:1 ({})", Plain(why)),
        None => String::new(),
    };
    format!(
        "address space {number}: pid {}, {vps}{threads}, {living}{mode}: {}",
        space.pid,
        Plain(&space.program)
    )
}

/// The number of kernel threads and the limit on them; `None` if unknown.
pub fn kernel_threads(space: &Space) -> Option<String> {
    (space.kernel_threads != 0)
        .then(|| format!("{} of at most {}", space.kernel_threads, space.most_kernel_threads))
}

fn show_spaces(out: &mut impl Write, seen: &[Seen]) -> io::Result<()> {
    let heads = [
        "SPACE", "PID", "VPS", "LIVING", "QUEUE", "POLICY", "EVENTS", "THREADS", "LOCKING", "MODE",
        "VERSION", "PROGRAM",
    ];
    table(out, heads, seen, |Seen { label, space, .. }, column, cell| match column {
        0 => {
            if let Some(label) = label {
                put(cell, format_args!("{}/", label.name()));
            }
            put(cell, space.id.location().space());
        }
        1 => put(cell, space.pid),
        2 => put(cell, space.vps),
        3 => put(cell, space.living),
        4 => put(cell, Name(&space.queue)),
        5 => put(cell, Name(&space.policy)),
        6 => put(cell, Name(&space.events)),
        7 => put(cell, format_args!("{}/{}", space.kernel_threads, space.most_kernel_threads)),
        8 => put(cell, Name(&space.locking)),
        9 => put(cell, Name(&space.mode)),
        10 => put(cell, Name(&space.version)),
        _ => put(cell, Plain(&space.program)),
    })
}

fn show_rows(out: &mut impl Write, label: Option<&Label>, rows: &[Microprocess]) -> io::Result<()> {
    let heads = ["ID", "NAME", "STATE", "PRIORITY", "VP", "THREAD", "WAITS-FOR"];
    table(out, heads, rows, |row, column, cell| match column {
        0 => put(cell, FullId(label, row.id)),
        _ => microprocess(row, column, cell),
    })
}

/// Appends the text of one cell of a microprocess's row.
pub fn microprocess(row: &Microprocess, column: usize, cell: &mut String) {
    match column {
        0 => put(cell, short(row.id)),
        1 => put(cell, Name(row.name.as_deref().unwrap_or("-"))),
        2 => {
            put(cell, row.state);
            if row.stopping {
                cell.push_str(", stopping");
            }
            if row.sticky.is_some() {
                cell.push_str(", sticky");
            }
        }
        3 => {
            put(cell, row.priority);
            if let Some(lent) = row.inherited {
                put(cell, format_args!(" ({lent} lent)"));
            }
        }
        4 => put(cell, row.vp),
        5 => match row.kernel_thread {
            Some(tid) => put(cell, tid),
            None => cell.push('-'),
        },
        _ => match (&row.waits_for, &row.sticky) {
            (Some(what), _) => {
                put(cell, Plain(what));
                // A lock that is free at the moment is about to be taken by a waiter.
                if let Some(holder) = row.holder.as_ref().filter(|holder| **holder != Holder::Free)
                {
                    put(cell, format_args!(", {}", Plain(&holder.to_string())));
                }
            }
            // The state is shown in another column; this column has the reason.
            (None, Some(why)) => put(cell, Plain(why)),
            (None, None) => {}
        },
    }
}

/// A row for tests.
#[cfg(test)]
pub fn example(id: &str, state: State) -> Microprocess {
    let id: kumihimo_resource::id::Id = id.parse().expect("an id");
    assert_eq!(id.kind(), kumihimo_resource::id::Kind::MICROPROCESS);
    Microprocess {
        id,
        name: None,
        state,
        stopping: false,
        waits_for: None,
        holder: None,
        priority: 32,
        inherited: None,
        vp: 0,
        kernel_thread: None,
        sticky: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(rows: &[Microprocess]) -> Vec<String> {
        rows.iter().map(|row| short(row.id).to_string()).collect()
    }

    #[test]
    fn sticky_microprocess_shows_the_reason() {
        let mut one = example("1.1.1", State::Blocked);
        one.sticky = Some("blocks often".to_owned());
        let cell = |row: &Microprocess, column| {
            let mut cell = String::new();
            microprocess(row, column, &mut cell);
            cell
        };
        assert_eq!(
            (cell(&one, 2), cell(&one, 6)),
            ("blocked, sticky".to_owned(), "blocks often".to_owned())
        );
        one.waits_for = Some("the mutex".to_owned());
        assert_eq!(cell(&one, 6), "the mutex");
        for (holder, want) in [
            (Holder::Free, "the mutex"),
            (Holder::Unknown, "the mutex, holder unknown"),
            (Holder::KernelThread { thread: 7 }, "the mutex, held by kernel thread 7"),
            (
                Holder::Microprocess { id: one.id, name: Some("a\x1b".to_owned()) },
                "the mutex, held by 1.1.1 (a\\u{1b})",
            ),
        ] {
            one.holder = Some(holder);
            assert_eq!(cell(&one, 6), want);
        }
        assert_eq!(cell(&example("1.1.1", State::Blocked), 6), "");
    }

    #[test]
    fn every_key_sorts() {
        let mut one = example("1.1.1", State::Waiting);
        one.name = Some("b".to_owned());
        one.inherited = Some(40);
        one.waits_for = Some("mutex".to_owned());
        one.vp = 2;
        let mut two = example("1.2.1", State::Running);
        two.name = Some("a".to_owned());
        two.kernel_thread = Some(7);
        two.vp = 1;
        let mut three = example("1.3.1", State::Blocked);
        three.kernel_thread = Some(5);
        three.priority = 33;
        for (key, want) in [
            (Key::Id, [1, 2, 3]),
            (Key::Name, [3, 2, 1]),
            (Key::State, [2, 1, 3]),
            (Key::Priority, [1, 3, 2]),
            (Key::Vp, [3, 2, 1]),
            (Key::Thread, [3, 2, 1]),
            (Key::WaitsFor, [1, 2, 3]),
        ] {
            let mut rows = vec![three.clone(), one.clone(), two.clone()];
            key.sort(&mut rows);
            assert_eq!(ids(&rows), want.map(|n| format!("1.{n}.1")), "{key:?}");
        }
    }

    #[test]
    fn rows_are_formatted() {
        let mut row = example("12.42.7", State::Blocked);
        row.name = Some("a\x1b[31mb".to_owned());
        row.stopping = true;
        row.inherited = Some(63);
        row.kernel_thread = Some(4711);
        let mut out = Vec::new();
        show_rows(&mut out, None, &[row, example("12.43.1", State::Running)]).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "ID       NAME          STATE              PRIORITY      VP  THREAD  WAITS-FOR\n\
             12.42.7  a\\u{1b}[31mb  blocked, stopping  32 (63 lent)  0   4711\n\
             12.43.1  -             running            32            0   -\n"
        );
    }

    #[test]
    fn address_space_includes_its_parts() {
        let of: Vec<Target> =
            ["13/a", "12.1.1", "12", "13.1.1"].map(|text| text.parse().unwrap()).into();
        let wanted = by_space(&of);
        let said: Vec<_> = wanted.iter().map(|w| (w.place.number, w.all, w.some.len())).collect();
        assert_eq!(said, [(12, true, 1), (13, false, 2)]);
    }
}
