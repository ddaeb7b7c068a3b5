//! The table of commands, and the command `COMMAND`, which lists it.

use super::{client, keys, lists, no_subcommand, pubsub, server, strings};
use crate::protocol::reply::Reply;
use crate::protocol::request::Args;
use crate::session::{
    ADMIN, Answer, BLOCKING, Command, FAST, GROWS, NO_AUTH, PUBSUB, READ, SUBSCRIBED, Session,
    WRITE, wrong_arity,
};

/// Finds a command by name, ignoring case.
pub fn find(name: &[u8]) -> Option<&'static Command> {
    // The first letter and the length already distinguish nearly all commands.
    ALL.iter().find(|command| {
        command.name.len() == name.len() && command.name.as_bytes().eq_ignore_ascii_case(name)
    })
}

type Run = fn(&mut Session, Args<'_>) -> Answer;

const fn new(
    name: &'static str,
    (arity, flags, keys): (i64, u16, (i64, i64, i64)),
    group: &'static str,
    summary: &'static str,
    run: Run,
) -> Command {
    Command { name, arity, flags, keys, group, summary, run }
}

const NONE: (i64, i64, i64) = (0, 0, 0);
const ONE: (i64, i64, i64) = (1, 1, 1);
const REST: (i64, i64, i64) = (1, -1, 1);

/// All commands, the most frequent first.
static ALL: &[Command] = &[
    new("get", (2, READ | FAST, ONE), "string", "Returns the string value of a key", strings::get),
    new("set", (-3, WRITE | GROWS, ONE), "string", "Sets the string value of a key", strings::set),
    new(
        "incr",
        (2, WRITE | GROWS | FAST, ONE),
        "string",
        "Increments the number of a key by one",
        strings::incr,
    ),
    new(
        "ping",
        (-1, FAST | SUBSCRIBED, NONE),
        "connection",
        "Returns PONG, or its argument",
        client::ping,
    ),
    new("del", (-2, WRITE, REST), "generic", "Removes keys", keys::del),
    new(
        "exists",
        (-2, READ | FAST, REST),
        "generic",
        "Counts how many of the keys exist",
        keys::exists,
    ),
    new(
        "mget",
        (-2, READ | FAST, REST),
        "string",
        "Returns the string values of keys",
        strings::mget,
    ),
    new(
        "mset",
        (-3, WRITE | GROWS, (1, -1, 2)),
        "string",
        "Sets the string values of keys, at once",
        strings::mset,
    ),
    new(
        "setnx",
        (3, WRITE | GROWS | FAST, ONE),
        "string",
        "Sets a key that does not exist",
        strings::setnx,
    ),
    new(
        "decr",
        (2, WRITE | GROWS | FAST, ONE),
        "string",
        "Decrements the number of a key by one",
        strings::decr,
    ),
    new(
        "incrby",
        (3, WRITE | GROWS | FAST, ONE),
        "string",
        "Increments the number of a key",
        strings::incrby,
    ),
    new(
        "decrby",
        (3, WRITE | GROWS | FAST, ONE),
        "string",
        "Decrements the number of a key",
        strings::decrby,
    ),
    new(
        "append",
        (3, WRITE | GROWS | FAST, ONE),
        "string",
        "Appends to the string of a key",
        strings::append,
    ),
    new(
        "strlen",
        (2, READ | FAST, ONE),
        "string",
        "Returns the length of a key's string",
        strings::strlen,
    ),
    new("lpush", (-3, WRITE | GROWS | FAST, ONE), "list", "Prepends items to a list", lists::lpush),
    new("rpush", (-3, WRITE | GROWS | FAST, ONE), "list", "Appends items to a list", lists::rpush),
    new(
        "lpop",
        (-2, WRITE | FAST, ONE),
        "list",
        "Removes and returns items from the front of a list",
        lists::lpop,
    ),
    new(
        "rpop",
        (-2, WRITE | FAST, ONE),
        "list",
        "Removes and returns items from the back of a list",
        lists::rpop,
    ),
    new("llen", (2, READ | FAST, ONE), "list", "Returns the length of a list", lists::llen),
    new("lrange", (4, READ, ONE), "list", "Returns a range of a list", lists::lrange),
    new(
        "blpop",
        (-3, WRITE | BLOCKING, (1, -2, 1)),
        "list",
        "Removes and returns the first item, or waits for an item",
        lists::blpop,
    ),
    new(
        "brpop",
        (-3, WRITE | BLOCKING, (1, -2, 1)),
        "list",
        "Removes and returns the last item, or waits for an item",
        lists::brpop,
    ),
    new(
        "expire",
        (-3, WRITE | FAST, ONE),
        "generic",
        "Sets the lifetime of a key in seconds",
        keys::expire,
    ),
    new(
        "pexpire",
        (-3, WRITE | FAST, ONE),
        "generic",
        "Sets the lifetime of a key in milliseconds",
        keys::pexpire,
    ),
    new(
        "expireat",
        (-3, WRITE | FAST, ONE),
        "generic",
        "Sets the expiry of a key in seconds since 1970",
        keys::expireat,
    ),
    new(
        "pexpireat",
        (-3, WRITE | FAST, ONE),
        "generic",
        "Sets the expiry of a key in milliseconds since 1970",
        keys::pexpireat,
    ),
    new(
        "ttl",
        (2, READ | FAST, ONE),
        "generic",
        "Returns the seconds until a key expires",
        keys::ttl,
    ),
    new(
        "pttl",
        (2, READ | FAST, ONE),
        "generic",
        "Returns the milliseconds until a key expires",
        keys::pttl,
    ),
    new("persist", (2, WRITE | FAST, ONE), "generic", "Removes the expiry of a key", keys::persist),
    new("type", (2, READ | FAST, ONE), "generic", "Returns the kind of a key's value", keys::kind),
    new("keys", (2, READ, NONE), "generic", "Returns the keys that match a pattern", keys::keys),
    new("scan", (-2, READ, NONE), "generic", "Iterates over the keys", keys::scan),
    new("dbsize", (1, READ | FAST, NONE), "server", "Returns the number of keys", keys::dbsize),
    new(
        "flushall",
        (-1, WRITE, NONE),
        "server",
        "Removes all keys of all databases",
        keys::flushall,
    ),
    new(
        "publish",
        (3, PUBSUB | FAST, NONE),
        "pubsub",
        "Sends a message to a channel",
        pubsub::publish,
    ),
    new(
        "subscribe",
        (-2, PUBSUB | SUBSCRIBED, NONE),
        "pubsub",
        "Subscribes to channels",
        pubsub::subscribe,
    ),
    new(
        "unsubscribe",
        (-1, PUBSUB | SUBSCRIBED, NONE),
        "pubsub",
        "Unsubscribes from channels",
        pubsub::unsubscribe,
    ),
    new(
        "psubscribe",
        (-2, PUBSUB | SUBSCRIBED, NONE),
        "pubsub",
        "Subscribes to channels that match patterns",
        pubsub::psubscribe,
    ),
    new(
        "punsubscribe",
        (-1, PUBSUB | SUBSCRIBED, NONE),
        "pubsub",
        "Unsubscribes from patterns",
        pubsub::punsubscribe,
    ),
    new("echo", (2, FAST, NONE), "connection", "Returns its argument", client::echo),
    new("auth", (-2, FAST | NO_AUTH, NONE), "connection", "Gives the password", client::auth),
    new(
        "hello",
        (-1, FAST | NO_AUTH, NONE),
        "connection",
        "Selects the protocol version",
        client::hello,
    ),
    new("select", (2, FAST, NONE), "connection", "Selects the database", client::select),
    new(
        "quit",
        (-1, FAST | SUBSCRIBED | NO_AUTH, NONE),
        "connection",
        "Ends the connection",
        client::quit,
    ),
    new(
        "client",
        (-2, 0, NONE),
        "connection",
        "Lists, changes and closes connections",
        client::client,
    ),
    new("command", (-1, 0, NONE), "server", "Describes commands", command),
    new("config", (-2, ADMIN, NONE), "server", "Returns settings", server::config),
    new("info", (-1, 0, NONE), "server", "Returns information about the server", server::info),
    new("shutdown", (-1, ADMIN, NONE), "server", "Stops the server", server::shutdown),
];

/// `COMMAND [COUNT | LIST | INFO [name ...] | DOCS [name ...]]`
pub fn command(session: &mut Session, args: Args<'_>) -> Answer {
    let reply = &mut session.reply;
    let Some(name) = args.get(1) else {
        reply.array(ALL.len());
        ALL.iter().for_each(|command| describe(reply, command));
        return Ok(());
    };
    match name.to_ascii_lowercase().as_slice() {
        b"count" if args.len() == 2 => reply.count(ALL.len()),
        b"list" if args.len() == 2 => {
            reply.set(ALL.len());
            ALL.iter().for_each(|command| reply.bulk(command.name.as_bytes()));
        }
        b"info" if args.len() > 2 => {
            reply.array(args.len() - 2);
            for name in args.from(2) {
                if reply.refused {
                    break;
                }
                match find(name) {
                    Some(command) => describe(reply, command),
                    None => reply.null_array(),
                }
            }
        }
        b"info" => {
            reply.array(ALL.len());
            ALL.iter().for_each(|command| describe(reply, command));
        }
        b"docs" if args.len() > 2 => {
            let found: Vec<_> = args.from(2).filter_map(find).collect();
            reply.map(found.len());
            for command in found {
                if reply.refused {
                    break;
                }
                document(reply, command);
            }
        }
        b"docs" => {
            reply.map(ALL.len());
            ALL.iter().for_each(|command| document(reply, command));
        }
        b"count" => return Err(wrong_arity("command|count")),
        b"list" => return Err(wrong_arity("command|list")),
        _ => return Err(no_subcommand("COMMAND", name)),
    }
    Ok(())
}

/// Writes the entry of `command` in the reply to `COMMAND`, as Redis 7 does: name, arity, flags,
/// keys, ACL categories, tips, key specifications, subcommands.
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
