//! `kumi resources`: the usage table (P3, figures 5 and 6).

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use kumihimo_machine::handler::{Resource, Space};
use kumihimo_resource::id::Kind;

use crate::ask::machines::{At, Found, Label, Labelled, Prefix, Where};
use crate::ask::{self, Place};
use crate::text::{Doing, Plain, code, json_line, put, short, table, written};

#[derive(clap::Args)]
pub struct Args {
    /// Address spaces (12), also of another machine (build7/12); all of the user's by default
    #[arg(value_name = "SPACE")]
    spaces: Vec<At<Place>>,
    /// Show only one kind: space, microprocess, stack, share, vp, timer, region, mailbox, file,
    /// socket, gate, link, or kind16 to kind31
    #[arg(long)]
    kind: Option<Kind>,
    /// Show only resources with names, as a sorted name tree
    #[arg(long)]
    named: bool,
    /// Print one JSON object a line
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    on: Where,
}

/// What an address space has replied.
type Seen = (Option<Label>, Space, Vec<Resource>);

/// Prints the table. Exit code 1 if an address space did not reply.
pub fn run(args: Args) -> Result<ExitCode, String> {
    let (found, mut whole) = args.on.spaces(&args.spaces)?;
    let asked = ask::each(found, |Found { label, place, neighbour }| -> Result<_, ask::Trouble> {
        let space = ask::space_at(neighbour, *place)?;
        let mut rows = neighbour.resources(args.kind)?;
        rows.sort_by_key(|row| row.id);
        Ok((label.clone(), space, rows))
    });
    let (seen, have_all_answered) = ask::answers(asked);
    whole &= have_all_answered;
    let mut out = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    written(show(&mut out, &seen, &args).and_then(|()| out.flush()).map(|()| code(whole)))
}

fn show(out: &mut impl Write, seen: &[Seen], args: &Args) -> io::Result<()> {
    for (nth, (label, space, rows)) in seen.iter().enumerate() {
        if args.json {
            let named = |row: &&Resource| !args.named || !row.names.is_empty();
            let label = label.as_ref();
            rows.iter()
                .filter(named)
                .try_for_each(|row| json_line(out, &Labelled::new(label, row)))?;
            continue;
        }
        if nth > 0 {
            writeln!(out)?;
        }
        let number = space.id.location().space();
        let (prefix, program) = (Prefix(label.as_ref()), Plain(&space.program));
        writeln!(out, "{prefix}address space {number}: pid {}: {program}", space.pid)?;
        if args.named {
            show_names(out, rows)?;
        } else {
            show_rows(out, rows)?;
        }
    }
    Ok(())
}

fn show_rows(out: &mut impl Write, rows: &[Resource]) -> io::Result<()> {
    table(
        out,
        ["KIND", "SERIAL", "OWNER", "STATE", "NAMES"],
        rows,
        |row, column, cell| match column {
            0 => put(cell, row.id.kind()),
            1 => put(cell, row.id.serial()),
            2 => match row.owner {
                Some(owner) => put(cell, short(owner)),
                None => cell.push('-'),
            },
            3 => put(cell, Doing(&row.state)),
            _ => {
                for (nth, name) in row.names.iter().enumerate() {
                    put(cell, format_args!("{}{}", if nth > 0 { " " } else { "" }, Plain(name)));
                }
            }
        },
    )
}

fn show_names(out: &mut impl Write, rows: &[Resource]) -> io::Result<()> {
    let mut names: Vec<(&str, &Resource)> = rows
        .iter()
        .flat_map(|row| row.names.iter().map(move |name| (name.as_str(), row)))
        .collect();
    names.sort_by_key(|(name, row)| (*name, row.id));
    table(out, ["ID", "OWNER", "STATE", "NAME"], &names, |(name, row), column, cell| match column {
        0 => put(cell, short(row.id)),
        1 => match row.owner {
            Some(owner) => put(cell, short(owner)),
            None => cell.push('-'),
        },
        2 => put(cell, Doing(&row.state)),
        _ => put(cell, Plain(name)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows() -> Vec<Resource> {
        [
            r#"{"id":"3.vp.0.1","state":"running"}"#,
            r#"{"id":"3.mailbox.7.2","owner":"3.microprocess.4.1","state":"2 waiting","names":["/mailbox/b","/mailbox/a"]}"#,
        ]
        .map(|row| serde_json::from_str(row).expect("a row"))
        .into()
    }

    #[test]
    fn usage_table_is_formatted() {
        let mut out = Vec::new();
        show_rows(&mut out, &rows()).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "KIND     SERIAL  OWNER  STATE      NAMES\n\
             vp       0.1     -      running\n\
             mailbox  7.2     3.4.1  2 waiting  /mailbox/b /mailbox/a\n"
        );
    }

    #[test]
    fn names_are_sorted() {
        let mut out = Vec::new();
        show_names(&mut out, &rows()).unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "ID             OWNER  STATE      NAME\n\
             3.mailbox.7.2  3.4.1  2 waiting  /mailbox/a\n\
             3.mailbox.7.2  3.4.1  2 waiting  /mailbox/b\n"
        );
    }
}
