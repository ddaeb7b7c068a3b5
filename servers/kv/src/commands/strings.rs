//! Commands on strings and on the numbers in them.

use kumihimo::sync::Arc;

use crate::commands::keys::{Unit, expiry};
use crate::commands::{SYNTAX, number};
use crate::data::key::{FOREVER, Time};
use crate::data::shard::{Shard, WRONG_TYPE};
use crate::data::value::{LARGE, Value};
use crate::protocol::reply::Reply;
use crate::protocol::request::{Args, MAX_BULK};
use crate::session::{Answer, Session, wrong_arity};

/// `GET key`
pub fn get(session: &mut Session, args: Args<'_>) -> Answer {
    let key = session.key(args.at(1));
    let mut shard = session.server.databases.lock(session.number, &key);
    let mut large = LargeTexts::default();
    match shard.find(&key, session.now) {
        Some(slot) => large.push(&mut session.reply, &shard.entry(slot).value)?,
        None => session.reply.null(),
    }
    drop(shard);
    large.copy(session);
    Ok(())
}

/// `SET key value [NX|XX] [GET] [EX seconds|PX milliseconds|EXAT second|PXAT millisecond|KEEPTTL]`
pub fn set(session: &mut Session, args: Args<'_>) -> Answer {
    let how = if args.len() == 3 { How::default() } else { how(session, args)? };
    let (key, value) = (session.key(args.at(1)), args.at(2));
    let large = copied(session, value);
    let mut shard = session.server.databases.lock(session.number, &key);
    if how.get {
        session.reply.bulk_or_null(shard.text(&key, session.now)?);
        if session.reply.refused {
            return Ok(());
        }
    }
    let slot = shard.find(&key, session.now);
    if how.only_if.is_some_and(|there| slot.is_some() != there) {
        if !how.get {
            session.reply.null();
        }
        return Ok(());
    }
    let expires = match (how.keep, slot) {
        (true, Some(slot)) => shard.entry(slot).expires,
        _ => how.expires,
    };
    let old = match large {
        None => shard.set(&key, slot, value, expires),
        Some(large) => shard.put(&key, slot, large, expires),
    };
    record_set(&shard, key.bytes, value, expires);
    drop(shard);
    drop(old);
    if !how.get {
        session.reply.ok();
    }
    Ok(())
}

fn record_set(shard: &Shard, key: &[u8], value: &[u8], expires: Time) {
    if expires == FOREVER {
        shard.record(&[b"SET", key, value]);
    } else {
        shard.record(&[
            b"SET",
            key,
            value,
            b"PXAT",
            itoa::Buffer::new().format(expires).as_bytes(),
        ]);
    }
}

struct How {
    /// `Some(true)`: only if the key exists. `Some(false)`: only if it does not.
    only_if: Option<bool>,
    get: bool,
    keep: bool,
    expires: Time,
}

impl Default for How {
    fn default() -> How {
        How { only_if: None, get: false, keep: false, expires: FOREVER }
    }
}

fn how(session: &Session, args: Args<'_>) -> Result<How, std::borrow::Cow<'static, str>> {
    let mut how = How::default();
    let mut limit: Option<(Unit, &[u8])> = None;
    let mut words = args.from(3);
    while let Some(word) = words.next() {
        let is = |name: &str| word.eq_ignore_ascii_case(name.as_bytes());
        let unit = if is("ex") {
            Some(Unit::Seconds)
        } else if is("px") {
            Some(Unit::Milliseconds)
        } else if is("exat") {
            Some(Unit::AtSecond)
        } else if is("pxat") {
            Some(Unit::AtMillisecond)
        } else {
            None
        };
        if let Some(unit) = unit {
            // A repeated option of the same unit replaces the earlier value.
            if how.keep || limit.is_some_and(|(other, _)| other != unit) {
                return Err(SYNTAX);
            }
            limit = Some((unit, words.next().ok_or(SYNTAX)?));
        } else if is("nx") && how.only_if != Some(true) {
            how.only_if = Some(false);
        } else if is("xx") && how.only_if != Some(false) {
            how.only_if = Some(true);
        } else if is("get") {
            how.get = true;
        } else if is("keepttl") && limit.is_none() {
            how.keep = true;
        } else {
            return Err(SYNTAX);
        }
    }
    if let Some((unit, text)) = limit {
        let value = number(text)?;
        // The time in a command from the log may be in the past.
        how.expires = expiry(unit, value, session.now)
            .filter(|_| value > 0)
            .ok_or("invalid expire time in 'set' command")?;
    }
    Ok(how)
}

/// `SETNX key value`
pub fn setnx(session: &mut Session, args: Args<'_>) -> Answer {
    let (key, value) = (session.key(args.at(1)), args.at(2));
    let mut shard = session.server.databases.lock(session.number, &key);
    let there = shard.find(&key, session.now).is_some();
    if !there {
        shard.set(&key, None, value, FOREVER);
        record_set(&shard, key.bytes, value, FOREVER);
    }
    session.reply.integer(i64::from(!there));
    Ok(())
}

/// `MGET key ...`
pub fn mget(session: &mut Session, args: Args<'_>) -> Answer {
    session.reply.array(args.len() - 1);
    let server = Arc::clone(&session.server);
    let mut shards = server.databases.lock_all(session.number, args.from(1));
    let mut large = LargeTexts::default();
    for name in args.from(1) {
        let key = server.databases.key(name);
        let shard = shards.of(&key);
        match shard.find(&key, session.now) {
            Some(slot) => {
                if large.push(&mut session.reply, &shard.entry(slot).value).is_err() {
                    session.reply.null();
                }
            }
            None => session.reply.null(),
        }
        if session.reply.refused {
            break;
        }
    }
    drop(shards);
    large.copy(session);
    Ok(())
}

/// Bytes of large texts that are copied before other microprocesses run.
const SLICE: usize = 64 << 10;

/// The large texts of a reply. They are copied after the locks have been released, in slices.
#[derive(Default)]
struct LargeTexts {
    /// Position in the replies, and the text that belongs there.
    texts: Vec<(usize, Arc<Vec<u8>>)>,
    bytes: usize,
}

impl LargeTexts {
    /// Appends a text to the replies, or remembers its place.
    ///
    /// # Errors
    /// If the value is no text.
    fn push(&mut self, reply: &mut Reply, value: &Value) -> Result<(), &'static str> {
        match value {
            Value::Text(text) if self.texts.is_empty() => reply.bulk(text),
            Value::Text(text) => {
                // The texts before this one have their memory already.
                if reply.fits(self.bytes + text.len() + 32) {
                    reply.bulk(text);
                }
            }
            Value::Large(text) => {
                if reply.fits(self.bytes + text.len() + 32) {
                    self.texts.push((reply.bulk_around(text.len()), Arc::clone(text)));
                    self.bytes += text.len();
                }
            }
            Value::List(_) => return Err(WRONG_TYPE),
        }
        Ok(())
    }

    /// Copies the texts to their places.
    fn copy(self, session: &mut Session) {
        let Some((first, _)) = self.texts.first() else { return };
        if session.reply.refused {
            return;
        }
        let mut at = *first;
        let mut rest = session.reply.bytes.split_off(at);
        session.reply.bytes.reserve(rest.len() + self.bytes);
        for (place, text) in self.texts {
            session.reply.bytes.extend_from_slice(&rest.split_to(place - at));
            at = place;
            for part in text.chunks(SLICE) {
                session.reply.bytes.extend_from_slice(part);
                session.step_aside();
            }
        }
        session.reply.bytes.extend_from_slice(&rest);
    }
}

/// Copies a large text, before the shard that will have it is locked.
fn copied(session: &mut Session, text: &[u8]) -> Option<Value> {
    if text.len() < LARGE {
        return None;
    }
    let mut copy = Vec::with_capacity(text.len());
    for part in text.chunks(SLICE) {
        copy.extend_from_slice(part);
        session.step_aside();
    }
    Some(Value::text(copy))
}

/// `MSET key value ...`
pub fn mset(session: &mut Session, args: Args<'_>) -> Answer {
    if args.len().is_multiple_of(2) {
        return Err(wrong_arity("mset"));
    }
    let databases = &session.server.databases;
    let mut shards = databases.lock_all(session.number, args.from(1).step_by(2));
    let mut old = Vec::new();
    for (name, value) in args.from(1).step_by(2).zip(args.from(2).step_by(2)) {
        let key = databases.key(name);
        let shard = shards.of(&key);
        let slot = shard.find(&key, session.now);
        old.extend(shard.set(&key, slot, value, FOREVER));
    }
    if databases.shared.log.get().is_some() {
        let command: Vec<_> = std::iter::once(&b"MSET"[..]).chain(args.from(1)).collect();
        shards.of(&databases.key(args.at(1))).record(&command);
    }
    drop(shards);
    drop(old);
    session.reply.ok();
    Ok(())
}

/// `APPEND key value`
pub fn append(session: &mut Session, args: Args<'_>) -> Answer {
    let (key, more) = (session.key(args.at(1)), args.at(2));
    let mut shard = session.server.databases.lock(session.number, &key);
    let length = match shard.find(&key, session.now) {
        None => {
            shard.set(&key, None, more, FOREVER);
            more.len()
        }
        Some(slot) => shard.change(slot, |value| {
            let text = match value {
                Value::Text(text) => text,
                // Copied only if a reader has it.
                Value::Large(text) => Arc::make_mut(text),
                Value::List(_) => return Err(WRONG_TYPE),
            };
            let length = text.len() + more.len();
            if length > MAX_BULK {
                return Err("string exceeds maximum allowed size (proto-max-bulk-len)");
            }
            if text.capacity() - text.len() < more.len() {
                // As in Redis: doubled, or by 1 MiB beyond that size.
                text.reserve_exact(more.len() + text.len().min(1 << 20));
            }
            text.extend_from_slice(more);
            if let Value::Text(text) = value
                && length >= LARGE
            {
                *value = Value::text(std::mem::take(text));
            }
            Ok(length)
        })?,
    };
    shard.record(&[b"APPEND", key.bytes, more]);
    session.reply.count(length);
    Ok(())
}

/// `STRLEN key`
pub fn strlen(session: &mut Session, args: Args<'_>) -> Answer {
    let key = session.key(args.at(1));
    let mut shard = session.server.databases.lock(session.number, &key);
    session.reply.count(shard.text(&key, session.now)?.map_or(0, <[u8]>::len));
    Ok(())
}

/// `INCR key`
pub fn incr(session: &mut Session, args: Args<'_>) -> Answer {
    add(session, args.at(1), 1)
}

/// `DECR key`
pub fn decr(session: &mut Session, args: Args<'_>) -> Answer {
    add(session, args.at(1), -1)
}

/// `INCRBY key by`
pub fn incrby(session: &mut Session, args: Args<'_>) -> Answer {
    add(session, args.at(1), number(args.at(2))?)
}

/// `DECRBY key by`
pub fn decrby(session: &mut Session, args: Args<'_>) -> Answer {
    add(session, args.at(1), number(args.at(2))?.checked_neg().ok_or("decrement would overflow")?)
}

fn add(session: &mut Session, name: &[u8], by: i64) -> Answer {
    let key = session.key(name);
    let mut shard = session.server.databases.lock(session.number, &key);
    let old = shard.text(&key, session.now)?.map_or(Ok(0), number)?;
    let new = old.checked_add(by).ok_or("increment or decrement would overflow")?;
    let mut digits = itoa::Buffer::new();
    let digits = digits.format(new).as_bytes();
    let slot = shard.find(&key, session.now);
    let expires = slot.map_or(FOREVER, |slot| shard.entry(slot).expires);
    shard.set(&key, slot, digits, expires);
    record_set(&shard, key.bytes, digits, expires);
    session.reply.integer(new);
    Ok(())
}
