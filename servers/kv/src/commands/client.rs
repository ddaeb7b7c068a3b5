//! Commands that concern a connection, and `CLIENT`, which concerns all connections.

use std::collections::BTreeSet;

use kumihimo::sync::Arc;
use kumihimo::sync::atomic::Ordering::Relaxed;

use crate::clients::Client;
use crate::commands::{SYNTAX, no_subcommand, number};
use crate::data::databases::DATABASES;
use crate::protocol::reply::Version;
use crate::protocol::request::Args;
use crate::session::{After, Answer, Session, shown, wrong_arity};

/// Longest name that a client gives to itself or to its library.
const MAX_NAME: usize = 256;

/// The version of Redis whose behaviour the server follows. Clients read it to detect features.
pub const REDIS_VERSION: &str = "7.0.15";

/// `PING [message]`
pub fn ping(session: &mut Session, args: Args<'_>) -> Answer {
    if args.len() > 2 {
        return Err(wrong_arity("ping"));
    }
    if session.subscriptions() > 0 && session.reply.version == Version::Two {
        session.reply.array(2);
        session.reply.bulk(b"pong");
        session.reply.bulk(args.get(1).unwrap_or_default());
        return Ok(());
    }
    match args.get(1) {
        None => session.reply.bytes.extend_from_slice(b"+PONG\r\n"),
        Some(message) => session.reply.bulk(message),
    }
    Ok(())
}

/// `ECHO message`
pub fn echo(session: &mut Session, args: Args<'_>) -> Answer {
    session.reply.bulk(args.at(1));
    Ok(())
}

/// `SELECT number`
pub fn select(session: &mut Session, args: Args<'_>) -> Answer {
    let wanted = number(args.at(1))?;
    i32::try_from(wanted).map_err(|_| {
        format!("value is out of range, value must between {} and {}", i32::MIN, i32::MAX)
    })?;
    session.number = usize::try_from(wanted)
        .ok()
        .filter(|&number| number < DATABASES)
        .ok_or("DB index is out of range")?;
    if let Some(client) = &session.client {
        client.database.store(session.number as u8, Relaxed);
    }
    session.reply.ok();
    Ok(())
}

/// `QUIT`
pub fn quit(session: &mut Session, _: Args<'_>) -> Answer {
    session.after = After::Close;
    session.reply.ok();
    Ok(())
}

/// `AUTH [user] password`
pub fn auth(session: &mut Session, args: Args<'_>) -> Answer {
    match (args.get(1), args.get(2)) {
        _ if args.len() > 3 => return Err(SYNTAX),
        (Some(_), None) if session.server.settings.password.is_none() => {
            return Err("AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?".into());
        }
        (Some(password), None) => log_in(session, b"default", password)?,
        (user, password) => {
            log_in(session, user.unwrap_or_default(), password.unwrap_or_default())?
        }
    }
    session.reply.ok();
    Ok(())
}

/// Authenticates the client. There is one user, `default`, with the password of the server. Without
/// a password, each is accepted, as in Redis.
fn log_in(session: &mut Session, user: &[u8], given: &[u8]) -> Answer {
    let accepted = session.server.settings.password.as_ref().is_none_or(|own| own.is(given));
    if user != b"default" || !accepted {
        return Err("WRONGPASS invalid username-password pair or user is disabled.".into());
    }
    session.authenticated = true;
    Ok(())
}

/// `HELLO [version [AUTH user password] [SETNAME name]]`
pub fn hello(session: &mut Session, args: Args<'_>) -> Answer {
    let version = match args.get(1) {
        None => session.reply.version,
        Some(text) => {
            match number(text).map_err(|_| "Protocol version is not an integer or out of range")? {
                2 => Version::Two,
                3 => Version::Three,
                _ => return Err("NOPROTO unsupported protocol version".into()),
            }
        }
    };
    let mut words = args.from(2);
    let mut name = None;
    while let Some(word) = words.next() {
        let left = words.len();
        if word.eq_ignore_ascii_case(b"auth") && left >= 2 {
            let (user, password) = (words.next(), words.next());
            log_in(session, user.unwrap_or_default(), password.unwrap_or_default())?;
        } else if word.eq_ignore_ascii_case(b"setname") && left >= 1 {
            name = words.next();
        } else {
            return Err(format!("Syntax error in HELLO option '{}'", shown(word)).into());
        }
    }
    if !session.authenticated {
        return Err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> <pass> option can be used to authenticate the client and select the RESP protocol version at the same time".into());
    }
    let Some(client) = session.client.clone() else { return Err("no client".into()) };
    if let Some(name) = name {
        client.told().name = plain(name, "Client names")?;
    }
    session.reply.version = version;
    client.resp3.store(version == Version::Three, Relaxed);
    if let Some(outbox) = &session.outbox {
        outbox.set_version(version);
    }
    let reply = &mut session.reply;
    reply.map(7);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"proto");
    reply.integer(if version == Version::Two { 2 } else { 3 });
    reply.bulk(b"id");
    reply.integer(client.id as i64);
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        reply.bulk(key.as_bytes());
        reply.bulk(value.as_bytes());
    }
    reply.bulk(b"modules");
    reply.array(0);
    Ok(())
}

/// Checks a name that a client gives itself: printable ASCII characters without spaces.
fn plain(text: &[u8], what: &str) -> Result<String, String> {
    if text.len() > MAX_NAME {
        return Err(format!("{what} cannot be longer than {MAX_NAME} bytes."));
    }
    if text.iter().all(|b| (b'!'..=b'~').contains(b)) {
        return Ok(String::from_utf8_lossy(text).into_owned());
    }
    Err(format!("{what} cannot contain spaces, newlines or special characters."))
}

/// `CLIENT ...`
pub fn client(session: &mut Session, args: Args<'_>) -> Answer {
    let Some(me) = session.client.clone() else { return Err("no client".into()) };
    session.show();
    let name = args.at(1).to_ascii_lowercase();
    let exactly = |words: usize| {
        let fits = args.len() == words;
        if fits { Ok(()) } else { Err(wrong_arity(&format!("client|{}", shown(&name)))) }
    };
    match name.as_slice() {
        b"id" => {
            exactly(2)?;
            session.reply.integer(me.id as i64);
        }
        b"getname" => {
            exactly(2)?;
            let told = me.told();
            session.reply.bulk_or_null((!told.name.is_empty()).then_some(told.name.as_bytes()));
        }
        b"setname" => {
            exactly(3)?;
            me.told().name = plain(args.at(2), "Client names")?;
            session.reply.ok();
        }
        b"setinfo" => {
            exactly(4)?;
            let what = args.at(2).to_ascii_lowercase();
            let told = &mut *me.told();
            let to = match what.as_slice() {
                b"lib-name" => &mut told.library,
                b"lib-ver" => &mut told.version,
                _ => {
                    return Err(format!("Unrecognized option '{}'", shown(args.at(2))).into());
                }
            };
            *to = plain(args.at(3), &shown(&what))?;
            session.reply.ok();
        }
        b"no-evict" | b"no-touch" => {
            exactly(3)?;
            // `NO-EVICT` and `NO-TOUCH` have no effect: the server never evicts clients and does
            // not record when keys are used.
            if !args.at(2).eq_ignore_ascii_case(b"on") && !args.at(2).eq_ignore_ascii_case(b"off") {
                return Err(SYNTAX);
            }
            session.reply.ok();
        }
        b"info" => {
            exactly(2)?;
            session.reply.verbatim(&format!("{}\n", me.line(session.now)));
        }
        b"list" => list(session, args)?,
        b"kill" => kill(session, args, &me)?,
        _ => return Err(no_subcommand("CLIENT", args.at(1))),
    }
    Ok(())
}

/// `CLIENT LIST [TYPE kind] [ID id ...]`
fn list(session: &mut Session, args: Args<'_>) -> Answer {
    let mut clients = session.server.clients.all();
    match (args.get(2), args.get(3)) {
        (None, _) => {}
        (Some(word), Some(kind)) if word.eq_ignore_ascii_case(b"type") && args.len() == 4 => {
            let kind = known_kind(kind)?;
            clients.retain(|client| client.kind() == kind);
        }
        (Some(word), Some(_)) if word.eq_ignore_ascii_case(b"id") => {
            let ids: Result<BTreeSet<_>, _> = args.from(3).map(number).collect();
            let ids = ids.map_err(|_| "Invalid client ID")?;
            clients.retain(|client| ids.contains(&(client.id as i64)));
        }
        _ => return Err(SYNTAX),
    }
    let lines: String = clients.iter().map(|client| client.line(session.now) + "\n").collect();
    session.reply.verbatim(&lines);
    Ok(())
}

fn known_kind(kind: &[u8]) -> Result<&'static str, String> {
    let kinds = ["normal", "pubsub", "master", "replica"];
    let found = kinds.into_iter().find(|known| kind.eq_ignore_ascii_case(known.as_bytes()));
    found.ok_or_else(|| format!("Unknown client type '{}'", shown(kind)))
}

/// `CLIENT KILL address`, or
/// `CLIENT KILL [ID id] [ADDR address] [LADDR address] [TYPE kind] [USER name] [SKIPME yes|no] ...`
fn kill(session: &mut Session, args: Args<'_>, me: &Arc<Client>) -> Answer {
    let mut clients = session.server.clients.all();
    if args.len() < 3 {
        return Err(wrong_arity("client|kill"));
    }
    let by_address = args.len() == 3;
    let mut skip_me = !by_address;
    if by_address {
        clients.retain(|client| client.address.as_bytes() == args.at(2));
    } else {
        let mut words = args.from(2);
        while let Some(word) = words.next() {
            let value = words.next().ok_or(SYNTAX)?;
            match word.to_ascii_lowercase().as_slice() {
                b"id" => {
                    let id = number(value)
                        .ok()
                        .filter(|&id| id > 0)
                        .ok_or("client-id should be greater than 0")?;
                    clients.retain(|client| client.id as i64 == id);
                }
                b"addr" => clients.retain(|client| client.address.as_bytes() == value),
                b"laddr" => clients.retain(|client| client.local.as_bytes() == value),
                b"type" => {
                    let kind = known_kind(value)?;
                    clients.retain(|client| client.kind() == kind);
                }
                b"user" if value == b"default" => {}
                b"user" => {
                    return Err(format!("No such user '{}'", shown(value)).into());
                }
                b"skipme" if value.eq_ignore_ascii_case(b"yes") => skip_me = true,
                b"skipme" if value.eq_ignore_ascii_case(b"no") => skip_me = false,
                _ => return Err(SYNTAX),
            }
        }
    }
    if skip_me {
        clients.retain(|client| client.id != me.id);
    }
    for client in &clients {
        if client.id == me.id {
            // The client that kills itself gets its reply first.
            session.after = After::Close;
        } else {
            client.kill();
        }
    }
    match (by_address, clients.len()) {
        (false, count) => session.reply.count(count),
        (true, 0) => return Err("No such client".into()),
        (true, _) => session.reply.ok(),
    }
    Ok(())
}
