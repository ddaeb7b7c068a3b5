//! What the server says of its commands.

use crate::command::{self, Command};
use crate::commands::no_subcommand;
use crate::reply::Reply;
use crate::request::Args;
use crate::session::{Answer, Session, wrong_arity};

/// `COMMAND [COUNT | LIST | INFO [name ...] | DOCS [name ...]]`
pub fn command(session: &mut Session, args: Args<'_>) -> Answer {
    let reply = &mut session.reply;
    let Some(name) = args.get(1) else {
        reply.array(command::all().len());
        command::all().iter().for_each(|command| describe(reply, command));
        return Ok(());
    };
    match name.to_ascii_lowercase().as_slice() {
        b"count" if args.len() == 2 => reply.count(command::all().len()),
        b"list" if args.len() == 2 => {
            reply.set(command::all().len());
            command::all().iter().for_each(|command| reply.bulk(command.name.as_bytes()));
        }
        b"info" if args.len() > 2 => {
            reply.array(args.len() - 2);
            for name in args.from(2) {
                match command::find(name) {
                    Some(command) => describe(reply, command),
                    None => reply.null_array(),
                }
            }
        }
        b"info" => {
            reply.array(command::all().len());
            command::all().iter().for_each(|command| describe(reply, command));
        }
        b"docs" if args.len() > 2 => {
            let found: Vec<_> = args.from(2).filter_map(command::find).collect();
            reply.map(found.len());
            found.into_iter().for_each(|command| document(reply, command));
        }
        b"docs" => {
            reply.map(command::all().len());
            command::all().iter().for_each(|command| document(reply, command));
        }
        b"count" => return Err(wrong_arity("command|count")),
        b"list" => return Err(wrong_arity("command|list")),
        _ => return Err(no_subcommand("COMMAND", name)),
    }
    Ok(())
}

/// Ten fields: name, arity, flags, keys, ACL categories, tips, key specifications, subcommands.
fn describe(reply: &mut Reply, command: &Command) {
    reply.array(10);
    reply.bulk(command.name.as_bytes());
    reply.integer(command.arity);
    reply.set(command.kinds().count());
    command.kinds().for_each(|kind| reply.simple(kind));
    let (first, last, step) = command.keys;
    [first, last, step].into_iter().for_each(|number| reply.integer(number));
    reply.set(1);
    reply.simple(&format!("@{}", command.group));
    reply.array(0);
    reply.array(0);
    reply.array(0);
}

fn document(reply: &mut Reply, command: &Command) {
    reply.bulk(command.name.as_bytes());
    reply.map(2);
    for (key, value) in [("summary", command.summary), ("group", command.group)] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
}
