//! Commands to publish and subscribe.

use kumihimo::sync::Arc;
use kumihimo::sync::atomic::Ordering::Relaxed;
use kumihimo::thread;

use crate::budget::{EXCEEDED, PER_NAME};
use crate::clients::channels::{Outbox, To};
use crate::protocol::reply::Reply;
use crate::protocol::request::Args;
use crate::session::{Answer, Session};

/// `PUBLISH channel message`
pub fn publish(session: &mut Session, args: Args<'_>) -> Answer {
    let server = Arc::clone(&session.server);
    let count = server.channels.publish(args.at(1), args.at(2), || session.step_aside());
    session.reply.count(count);
    Ok(())
}

/// `SUBSCRIBE channel ...`
pub fn subscribe(session: &mut Session, args: Args<'_>) -> Answer {
    subscribe_to(session, args, To::Channel)
}

/// `PSUBSCRIBE pattern ...`
pub fn psubscribe(session: &mut Session, args: Args<'_>) -> Answer {
    subscribe_to(session, args, To::Pattern)
}

/// `UNSUBSCRIBE [channel ...]`
pub fn unsubscribe(session: &mut Session, args: Args<'_>) -> Answer {
    unsubscribe_from(session, args, To::Channel)
}

/// `PUNSUBSCRIBE [pattern ...]`
pub fn punsubscribe(session: &mut Session, args: Args<'_>) -> Answer {
    unsubscribe_from(session, args, To::Pattern)
}

fn subscribe_to(session: &mut Session, args: Args<'_>, to: To) -> Answer {
    let outbox = outbox(session)?;
    let verb = if to == To::Channel { "subscribe" } else { "psubscribe" };
    for name in args.from(1) {
        let names = if to == To::Channel { &mut session.channels } else { &mut session.patterns };
        let new = !names.contains(name);
        if new {
            let more = session.subscribed.bytes() + 2 * name.len() + PER_NAME;
            if !session.subscribed.resize(more) {
                show(session);
                return Err(EXCEEDED.into());
            }
            names.insert(name.into());
        }
        let told = confirmation(session, verb, Some(name));
        if new {
            session.server.channels.subscribe(to, name, &outbox, &told);
        } else {
            outbox.put(|_| &told);
        }
    }
    show(session);
    Ok(())
}

fn unsubscribe_from(session: &mut Session, args: Args<'_>, to: To) -> Answer {
    let verb = if to == To::Channel { "unsubscribe" } else { "punsubscribe" };
    let names = if to == To::Channel { &session.channels } else { &session.patterns };
    let names: Vec<Box<[u8]>> = if args.len() > 1 {
        args.from(1).map(Into::into).collect()
    } else {
        names.iter().cloned().collect()
    };
    if names.is_empty() {
        let told = confirmation(session, verb, None);
        session.reply.bytes.extend_from_slice(&told);
    }
    for name in names {
        let mine = if to == To::Channel { &mut session.channels } else { &mut session.patterns };
        let was = mine.remove(&name);
        if was {
            let bytes = session.subscribed.bytes().saturating_sub(2 * name.len() + PER_NAME);
            session.subscribed.resize(bytes);
        }
        let told = confirmation(session, verb, Some(&name));
        match &session.outbox {
            Some(outbox) if was => session.server.channels.unsubscribe(to, &name, outbox, &told),
            Some(outbox) => outbox.put(|_| &told),
            None => session.reply.bytes.extend_from_slice(&told),
        }
    }
    show(session);
    Ok(())
}

fn confirmation(session: &Session, verb: &str, name: Option<&[u8]>) -> Vec<u8> {
    let mut told = Reply::new(session.reply.version);
    told.push(3);
    told.bulk(verb.as_bytes());
    told.bulk_or_null(name);
    told.count(session.subscriptions());
    told.bytes.to_vec()
}

fn show(session: &Session) {
    if let Some(client) = &session.client {
        client.channels.store(session.subscriptions(), Relaxed);
        client.patterns.store(session.patterns.len(), Relaxed);
    }
}

/// Returns the connection's outbox. The first call creates it and starts the microprocess that
/// sends its contents.
fn outbox(session: &mut Session) -> Result<Arc<Outbox>, String> {
    let client = session.client.as_ref().ok_or("no client")?;
    if session.outbox.is_none() {
        let outbox = Arc::new(Outbox::new(Arc::clone(client), session.reply.version));
        let (theirs, stream) = (Arc::clone(&outbox), Arc::clone(client.stream()));
        let sender = thread::Builder::new().spawn(move || theirs.empty(&stream));
        session.sender = Some(sender.map_err(|e| e.to_string())?);
        session.outbox = Some(outbox);
    }
    session.hand_over();
    session.outbox.clone().ok_or_else(|| "no outbox".to_owned())
}
