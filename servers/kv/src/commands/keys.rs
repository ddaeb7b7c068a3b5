//! Commands on keys of every type, and on their expiry.

use std::borrow::Cow;

use kumihimo::sync::Arc;

use crate::budget::Share;
use crate::commands::{SYNTAX, number};
use crate::data::entry::Entry;
use crate::data::glob;
use crate::data::key::{FOREVER, Time};
use crate::data::value::Value;
use crate::protocol::request::Args;
use crate::session::{Answer, Session, shown};

/// `DEL key ...`
pub fn del(session: &mut Session, args: Args<'_>) -> Answer {
    let databases = &session.server.databases;
    let mut shards = databases.lock_all(session.number, args.from(1));
    let (mut gone, mut removed) = (Vec::new(), Vec::new());
    for name in args.from(1) {
        let key = databases.key(name);
        let shard = shards.of(&key);
        if let Some(slot) = shard.find(&key, session.now) {
            gone.push(shard.remove(slot));
            removed.push(name);
        }
    }
    if removed.len() > 1 && databases.shared.log.get().is_some() {
        // One record for all keys: after a crash, either all of them are removed or none.
        removed.insert(0, b"DEL");
        shards.of(&databases.key(removed[1])).record(&removed);
    } else if let [name] = removed[..] {
        shards.of(&databases.key(name)).record(&[b"DEL", name]);
    }
    drop(shards);
    session.reply.count(gone.len());
    free(session, gone);
    Ok(())
}

/// Frees entries that have been removed, in slices.
fn free(session: &mut Session, gone: Vec<Entry>) {
    let mut left = SLICE_KEYS;
    for mut entry in gone {
        if let Value::List(list) = &mut entry.value {
            while list.len() > SLICE_KEYS {
                list.drop_last(SLICE_KEYS);
                session.step_aside();
            }
        }
        drop(entry);
        left -= 1;
        if left == 0 {
            session.step_aside();
            left = SLICE_KEYS;
        }
    }
}

/// `EXISTS key ...`
pub fn exists(session: &mut Session, args: Args<'_>) -> Answer {
    let databases = &session.server.databases;
    let mut shards = databases.lock_all(session.number, args.from(1));
    let there = args.from(1).filter(|name| {
        let key = databases.key(name);
        shards.of(&key).find(&key, session.now).is_some()
    });
    let count = there.count();
    drop(shards);
    session.reply.count(count);
    Ok(())
}

/// `TYPE key`
pub fn kind(session: &mut Session, args: Args<'_>) -> Answer {
    let key = session.key(args.at(1));
    let mut shard = session.server.databases.lock(session.number, &key);
    let kind = shard.find(&key, session.now).map_or("none", |slot| shard.entry(slot).value.kind());
    session.reply.simple(kind);
    Ok(())
}

/// Unit and origin of a time argument.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Milliseconds,
    /// Seconds since 1970.
    AtSecond,
    /// Milliseconds since 1970.
    AtMillisecond,
}

/// Converts a time argument to an absolute time. Times before 1970 become 1. Returns `None` on
/// overflow, and for a relative time in an append log: during replay, there is no `now`.
pub fn expiry(unit: Unit, value: i64, now: Time) -> Option<Time> {
    if now == 0 && matches!(unit, Unit::Seconds | Unit::Milliseconds) {
        return None;
    }
    let value = match unit {
        Unit::Seconds | Unit::AtSecond => value.checked_mul(1000)?,
        Unit::Milliseconds | Unit::AtMillisecond => value,
    };
    let value = match unit {
        Unit::Seconds | Unit::Milliseconds => value.checked_add(now as i64)?,
        Unit::AtSecond | Unit::AtMillisecond => value,
    };
    Some(value.max(1) as Time)
}

/// `EXPIRE key seconds [NX|XX|GT|LT]`
pub fn expire(session: &mut Session, args: Args<'_>) -> Answer {
    expire_by(session, args, Unit::Seconds, "expire")
}

/// `PEXPIRE key milliseconds [NX|XX|GT|LT]`
pub fn pexpire(session: &mut Session, args: Args<'_>) -> Answer {
    expire_by(session, args, Unit::Milliseconds, "pexpire")
}

/// `EXPIREAT key second [NX|XX|GT|LT]`
pub fn expireat(session: &mut Session, args: Args<'_>) -> Answer {
    expire_by(session, args, Unit::AtSecond, "expireat")
}

/// `PEXPIREAT key millisecond [NX|XX|GT|LT]`
pub fn pexpireat(session: &mut Session, args: Args<'_>) -> Answer {
    expire_by(session, args, Unit::AtMillisecond, "pexpireat")
}

#[derive(Default)]
struct Only {
    not_set: bool,
    set: bool,
    later: bool,
    earlier: bool,
}

impl Only {
    fn parse(args: Args<'_>) -> Result<Only, Cow<'static, str>> {
        let mut only = Only::default();
        for word in args.from(3) {
            let flag = match word.to_ascii_lowercase().as_slice() {
                b"nx" => &mut only.not_set,
                b"xx" => &mut only.set,
                b"gt" => &mut only.later,
                b"lt" => &mut only.earlier,
                _ => return Err(format!("Unsupported option {}", shown(word)).into()),
            };
            *flag = true;
        }
        if only.not_set && (only.set || only.later || only.earlier) {
            return Err("NX and XX, GT or LT options at the same time are not compatible".into());
        }
        if only.later && only.earlier {
            return Err("GT and LT options at the same time are not compatible".into());
        }
        Ok(only)
    }

    /// Returns whether the options allow an expiry of `old` to be replaced by `new`. A key that
    /// never expires counts as later than every time.
    fn allows(&self, old: Time, new: Time) -> bool {
        !(self.not_set && old != FOREVER
            || self.set && old == FOREVER
            || self.later && new <= old
            || self.earlier && new >= old)
    }
}

fn expire_by(session: &mut Session, args: Args<'_>, unit: Unit, name: &str) -> Answer {
    let only = Only::parse(args)?;
    let value = number(args.at(2))?;
    let when = expiry(unit, value, session.now)
        .ok_or_else(|| format!("invalid expire time in '{name}' command"))?;
    let key = session.key(args.at(1));
    let mut shard = session.server.databases.lock(session.number, &key);
    let slot =
        shard.find(&key, session.now).filter(|&slot| only.allows(shard.entry(slot).expires, when));
    session.reply.integer(i64::from(slot.is_some()));
    let Some(slot) = slot else { return Ok(()) };
    if when <= session.now {
        let gone = shard.remove(slot);
        shard.record(&[b"DEL", key.bytes]);
        drop(shard);
        drop(gone);
    } else {
        shard.set_expiry(slot, when);
        shard.record(&[b"PEXPIREAT", key.bytes, itoa::Buffer::new().format(when).as_bytes()]);
    }
    Ok(())
}

/// `PERSIST key`
pub fn persist(session: &mut Session, args: Args<'_>) -> Answer {
    let key = session.key(args.at(1));
    let mut shard = session.server.databases.lock(session.number, &key);
    let slot = shard.find(&key, session.now).filter(|&slot| shard.entry(slot).expires != FOREVER);
    if let Some(slot) = slot {
        shard.set_expiry(slot, FOREVER);
        shard.record(&[b"PERSIST", key.bytes]);
    }
    session.reply.integer(i64::from(slot.is_some()));
    Ok(())
}

/// `TTL key`
pub fn ttl(session: &mut Session, args: Args<'_>) -> Answer {
    left(session, args, |milliseconds| (milliseconds + 500) / 1000)
}

/// `PTTL key`
pub fn pttl(session: &mut Session, args: Args<'_>) -> Answer {
    left(session, args, |milliseconds| milliseconds)
}

fn left(session: &mut Session, args: Args<'_>, shown: fn(i64) -> i64) -> Answer {
    let key = session.key(args.at(1));
    let mut shard = session.server.databases.lock(session.number, &key);
    let left = match shard.find(&key, session.now).map(|slot| shard.entry(slot).expires) {
        None => -2,
        Some(FOREVER) => -1,
        Some(expires) => shown(expires.saturating_sub(session.now) as i64),
    };
    session.reply.integer(left);
    Ok(())
}

/// Keys, and steps of the comparison with a pattern, after which `KEYS` and `SCAN` release the lock
/// and let others run.
const SLICE_KEYS: usize = 256;
const SLICE_STEPS: usize = 1 << 16;

/// `KEYS pattern`
pub fn keys(session: &mut Session, args: Args<'_>) -> Answer {
    let start = session.reply.bytes.len();
    let (_, count) = collect(session, 0, usize::MAX, Some(args.at(1)), None)?;
    session.reply.array_at(start, count);
    Ok(())
}

/// Visits about `count` keys from `cursor` on, and appends those that fit to the reply. Returns the
/// next cursor and the number of appended keys. Works in slices, between which other microprocesses
/// run: a key that comes or goes meanwhile may be in the reply or not, as with `SCAN`.
fn collect(
    session: &mut Session,
    mut cursor: u64,
    mut count: usize,
    pattern: Option<&[u8]>,
    kind: Option<&[u8]>,
) -> Result<(u64, usize), Cow<'static, str>> {
    let server = Arc::clone(&session.server);
    let (number, now) = (session.number, session.now);
    let mut found = 0;
    loop {
        let slice = count.min(SLICE_KEYS);
        let mut steps = 0;
        let mut seen = 0;
        // A key whose comparison is too long for a slice is copied, and compared without the lock.
        let mut long: Option<(Box<[u8]>, Share)> = None;
        let reply = &mut session.reply;
        let account = session.client.as_ref().map(|client| &client.account);
        cursor = server.databases.scan(number, cursor, slice, now, |entry| {
            seen += 1;
            if kind.is_some_and(|kind| !entry.value.kind().as_bytes().eq_ignore_ascii_case(kind)) {
                return true;
            }
            let cost = pattern.map_or(1, |pattern| glob::cost(pattern, &entry.key));
            if cost > SLICE_STEPS {
                let mut share = account.map_or_else(Share::default, Share::new);
                if share.resize(entry.key.len()) {
                    long = Some((entry.key.clone(), share));
                } else {
                    reply.refused = true;
                }
                return false;
            }
            steps += cost;
            if pattern.is_none_or(|pattern| glob::matches(pattern, &entry.key)) {
                reply.bulk(&entry.key);
                found += 1;
            }
            steps < SLICE_STEPS && !reply.refused
        });
        if let (Some((key, _share)), Some(pattern)) = (&long, pattern) {
            let mut matching = glob::Matching::default();
            let matched = loop {
                match matching.run(pattern, key, SLICE_STEPS) {
                    Some(matched) => break matched,
                    None => session.pause()?,
                }
            };
            if matched {
                session.reply.bulk(key);
                found += 1;
            }
        }
        // Free and expired places count too, so that each slice makes progress.
        count = count.saturating_sub(if cursor == 0 || steps < SLICE_STEPS && long.is_none() {
            slice
        } else {
            seen
        });
        if cursor == 0 || count == 0 || session.reply.refused {
            return Ok((cursor, found));
        }
        session.pause()?;
    }
}

/// `SCAN cursor [MATCH pattern] [COUNT count] [TYPE type]`
pub fn scan(session: &mut Session, args: Args<'_>) -> Answer {
    let cursor = std::str::from_utf8(args.at(1))
        .ok()
        .and_then(|text| text.parse::<u64>().ok())
        .ok_or("invalid cursor")?;
    let (mut pattern, mut count, mut kind) = (None, 10, None);
    let mut words = args.from(2);
    while let Some(word) = words.next() {
        let value = words.next().ok_or(SYNTAX)?;
        if word.eq_ignore_ascii_case(b"match") {
            pattern = Some(value);
        } else if word.eq_ignore_ascii_case(b"count") {
            count =
                usize::try_from(number(value)?).ok().filter(|&count| count > 0).ok_or(SYNTAX)?;
        } else if word.eq_ignore_ascii_case(b"type") {
            kind = Some(value);
        } else {
            return Err(SYNTAX);
        }
    }
    let start = session.reply.bytes.len();
    let (next, found) = collect(session, cursor, count, pattern, kind)?;
    session.reply.array_at(start, found);
    let keys = session.reply.bytes.len() - start;
    session.reply.array(2);
    session.reply.bulk(itoa::Buffer::new().format(next).as_bytes());
    session.reply.bytes[start..].rotate_left(keys);
    Ok(())
}

/// `DBSIZE`
pub fn dbsize(session: &mut Session, _: Args<'_>) -> Answer {
    let mut shards = session.server.databases.lock_whole(session.number);
    let count = shards.shards().map(|shard| shard.len()).sum();
    drop(shards);
    session.reply.count(count);
    Ok(())
}

/// `FLUSHALL [ASYNC|SYNC]`
pub fn flushall(session: &mut Session, args: Args<'_>) -> Answer {
    match args.get(1) {
        None => {}
        Some(word)
            if args.len() == 2
                && (word.eq_ignore_ascii_case(b"async") || word.eq_ignore_ascii_case(b"sync")) => {}
        Some(_) => return Err(SYNTAX),
    }
    let cleared = session.server.databases.clear();
    for mut cleared in cleared {
        while !cleared.is_empty() {
            cleared.free_some();
            session.step_aside();
        }
    }
    session.reply.ok();
    Ok(())
}
