//! Commands on lists.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use kumihimo::sync::Arc;

use crate::budget::{EXCEEDED, PER_NAME, Share};
use crate::commands::{FULL, number};
use crate::data::key::{Key, now};
use crate::data::shard::Shard;
use crate::data::value::{End, Value};
use crate::data::waiter::Waiter;
use crate::protocol::request::Args;
use crate::session::wait::Wait;
use crate::session::{Answer, Session, wrong_arity};

/// `LPUSH key item ...`
pub fn lpush(session: &mut Session, args: Args<'_>) -> Answer {
    push(session, args, End::Left, b"LPUSH")
}

/// `RPUSH key item ...`
pub fn rpush(session: &mut Session, args: Args<'_>) -> Answer {
    push(session, args, End::Right, b"RPUSH")
}

fn push(session: &mut Session, args: Args<'_>, end: End, name: &[u8]) -> Answer {
    let key = session.key(args.at(1));
    let mut shard = session.server.databases.lock(session.number, &key);
    let slot = match shard.list(&key, session.now)? {
        Some((_, list))
            if session.client.is_some() && session.server.is_full(list.growth(args.len() - 2)) =>
        {
            return Err(FULL.into());
        }
        Some((slot, _)) => slot,
        None => shard.insert(&key, Value::List(Box::default())),
    };
    let length = shard.change_list(slot, |list| {
        args.from(2).for_each(|item| list.push(end, item));
        list.len()
    });
    if session.server.databases.shared.log.get().is_some() {
        let command: Vec<_> = std::iter::once(name).chain(args.from(1)).collect();
        shard.record(&command);
    }
    shard.serve(&key, slot);
    drop(shard);
    session.reply.count(length);
    Ok(())
}

/// `LPOP key [count]`
pub fn lpop(session: &mut Session, args: Args<'_>) -> Answer {
    pop(session, args, End::Left, "lpop")
}

/// `RPOP key [count]`
pub fn rpop(session: &mut Session, args: Args<'_>) -> Answer {
    pop(session, args, End::Right, "rpop")
}

fn pop(session: &mut Session, args: Args<'_>, end: End, name: &str) -> Answer {
    if args.len() > 3 {
        return Err(wrong_arity(name));
    }
    let out_of_range = "value is out of range, must be positive";
    let count = match args.get(2) {
        None => None,
        Some(count) => Some(
            number(count).ok().and_then(|count| usize::try_from(count).ok()).ok_or(out_of_range)?,
        ),
    };
    let key = session.key(args.at(1));
    let mut shard = session.server.databases.lock(session.number, &key);
    let Some((slot, list)) = shard.list(&key, session.now)? else {
        match count {
            None => session.reply.null(),
            Some(_) => session.reply.null_array(),
        }
        return Ok(());
    };
    let bytes = list.bytes_at(end, count.unwrap_or(1));
    let count = count.map(|count| count.min(list.len()));
    if !session.reply.fits(bytes) {
        return Ok(());
    }
    let Some(count) = count else {
        let item = take(&mut shard, &key, slot, end);
        drop(shard);
        session.reply.bulk(&item);
        return Ok(());
    };
    session.reply.array(count);
    if count > 0 {
        shard.change_list(slot, |list| {
            (0..count).filter_map(|_| list.pop(end)).for_each(|item| session.reply.bulk(&item));
        });
        shard.record(&[pop_name(end), key.bytes, itoa::Buffer::new().format(count).as_bytes()]);
    }
    Ok(())
}

fn pop_name(end: End) -> &'static [u8] {
    match end {
        End::Left => b"LPOP",
        End::Right => b"RPOP",
    }
}

fn take(shard: &mut Shard, key: &Key<'_>, slot: u32, end: End) -> Box<[u8]> {
    let item = shard.change_list(slot, |list| list.pop(end)).expect("a list is never empty");
    shard.record(&[pop_name(end), key.bytes]);
    item
}

/// `LLEN key`
pub fn llen(session: &mut Session, args: Args<'_>) -> Answer {
    let key = session.key(args.at(1));
    let mut shard = session.server.databases.lock(session.number, &key);
    session.reply.count(shard.list(&key, session.now)?.map_or(0, |(_, list)| list.len()));
    Ok(())
}

/// `LRANGE key from to`
pub fn lrange(session: &mut Session, args: Args<'_>) -> Answer {
    let (from, to) = (number(args.at(2))?, number(args.at(3))?);
    let key = session.key(args.at(1));
    let mut shard = session.server.databases.lock(session.number, &key);
    let Some((_, list)) = shard.list(&key, session.now)? else {
        session.reply.array(0);
        return Ok(());
    };
    let length = list.len() as i64;
    let place = |i: i64| if i < 0 { i.saturating_add(length).max(-1) } else { i };
    let (from, to) = (place(from).max(0), place(to).min(length - 1));
    let items =
        if from > to { list.range(0, 0) } else { list.range(from as usize, to as usize + 1) };
    session.reply.array(items.len());
    for item in items {
        session.reply.bulk(item);
        if session.reply.refused {
            break;
        }
    }
    Ok(())
}

/// Waits for an item and writes the reply.
pub fn finish(wait: Wait, session: &mut Session) {
    let given = wait.waiter.wait(wait.deadline);
    drop(wait);
    session.now = now();
    match given {
        Ok(Some((key, item, share))) => {
            session.reply.adopt(share);
            reply_item(session, &key, &item);
        }
        Ok(None) => session.reply.null_array(),
        Err(error) => session.reply.error(error),
    }
}

/// `BLPOP key ... timeout`
pub fn blpop(session: &mut Session, args: Args<'_>) -> Answer {
    pop_or_wait(session, args, End::Left)
}

/// `BRPOP key ... timeout`
pub fn brpop(session: &mut Session, args: Args<'_>) -> Answer {
    pop_or_wait(session, args, End::Right)
}

fn pop_or_wait(session: &mut Session, args: Args<'_>, end: End) -> Answer {
    let deadline = deadline(args.at(args.len() - 1))?;
    let keys = args.from(1).take(args.len() - 2);
    let server = Arc::clone(&session.server);
    let mut shards = server.databases.lock_all(session.number, keys.clone());
    for name in keys.clone() {
        let key = server.databases.key(name);
        let shard = shards.of(&key);
        if let Some((slot, list)) = shard.list(&key, session.now)? {
            if !session.reply.fits(list.bytes_at(end, 1) + name.len() + 64) {
                return Ok(());
            }
            let item = take(shard, &key, slot, end);
            drop(shards);
            reply_item(session, name, &item);
            return Ok(());
        }
    }
    let Some(client) = &session.client else { return Err("no client".into()) };
    // A key that is repeated would be queued again.
    let keys: BTreeSet<&[u8]> = keys.collect();
    let mut share = Share::new(&client.account);
    if !share.resize(keys.iter().map(|key| 2 * key.len() + PER_NAME).sum::<usize>() - PER_NAME) {
        return Err(EXCEEDED.into());
    }
    let waiter = Arc::new(Waiter::new(end, &client.account));
    for name in &keys {
        let key = server.databases.key(name);
        shards.of(&key).wait(&key, Arc::clone(&waiter));
    }
    drop(shards);
    let keys = keys.into_iter().map(Into::into).collect();
    session.wait = Some(Wait { server, number: session.number, keys, waiter, deadline, share });
    Ok(())
}

fn reply_item(session: &mut Session, key: &[u8], item: &[u8]) {
    session.reply.array(2);
    session.reply.bulk(key);
    session.reply.bulk(item);
}

/// Converts a timeout in seconds to a deadline. A timeout of 0 has none.
fn deadline(seconds: &[u8]) -> Result<Option<Instant>, Cow<'static, str>> {
    let bad = "timeout is not a float or out of range";
    let seconds: f64 =
        std::str::from_utf8(seconds).ok().and_then(|text| text.parse().ok()).ok_or(bad)?;
    if seconds.is_nan() {
        return Err(bad.into());
    }
    if seconds < 0.0 {
        return Err("timeout is negative".into());
    }
    if seconds * 1000.0 > i64::MAX as f64 {
        return Err("timeout is out of range".into());
    }
    // A timeout beyond the range of `Duration` never expires.
    let time = Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero());
    Ok(time.and_then(|time| Instant::now().checked_add(time)))
}
