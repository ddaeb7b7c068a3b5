//! The state of one connection between two commands, and the type of a command.
//!
//! A [`Command`] is a row of the table in `commands`; it receives the session and the arguments,
//! and writes its reply into the session. `wait.rs` is a command that has to wait for an item.
//!
//! Uses the server, its clients and data. The commands and their dispatch stand above.

pub mod wait;

use std::borrow::Cow;
use std::collections::BTreeSet;

use kumihimo::sync::Arc;
use kumihimo::sync::atomic::Ordering::Relaxed;
use kumihimo::thread::JoinHandle;

use crate::clients::Client;
use crate::clients::channels::{Outbox, To};
use crate::data::databases::Databases;
use crate::data::key::Key;
use crate::data::key::Time;
use crate::protocol::reply::Reply;
use crate::protocol::request::Args;
use crate::server::Server;
use wait::Wait;

/// The name that `CLIENT LIST` shows for a client without a command yet.
const FIRST_COMMAND: &str = "ping";

/// A reply was written; or this error is the reply.
pub type Answer = Result<(), Cow<'static, str>>;

/// What becomes of the connection after the command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// The next command.
    #[default]
    Next,
    /// The reply, then the end.
    Close,
    /// The end, without a reply to this one.
    Drop,
}

/// It may change data: refused while the log cannot be written.
pub const WRITE: u8 = 1;
/// It may take more memory: refused beyond `maxmemory`.
pub const GROWS: u8 = 2;
/// It reads data.
pub const READ: u8 = 4;
/// It takes the same time however much there is.
pub const FAST: u8 = 8;
/// It may be given in RESP2 by one that has subscribed.
pub const SUBSCRIBED: u8 = 16;
/// It may wait.
pub const BLOCKING: u8 = 32;
/// It concerns the server.
pub const ADMIN: u8 = 64;
/// It publishes or subscribes.
pub const PUBSUB: u8 = 128;

/// A command.
pub struct Command {
    /// In lower case.
    pub name: &'static str,
    /// How many words, the name included; negative: at least so many.
    pub arity: i64,
    /// What kind it is.
    pub flags: u8,
    /// Its first key, its last one (negative: from the end) and the step between them.
    pub keys: (i64, i64, i64),
    /// As `COMMAND DOCS` groups them.
    pub group: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// Does it.
    pub run: fn(&mut Session, Args<'_>) -> Answer,
}

impl Command {
    /// Whether it may have so many words.
    pub fn takes(&self, words: usize) -> bool {
        if self.arity < 0 { words as i64 >= -self.arity } else { words as i64 == self.arity }
    }

    /// Whether it is of the kind `flag`.
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// What kinds it is of, as `COMMAND` calls them.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> + Clone {
        let names = [
            (WRITE, "write"),
            (GROWS, "denyoom"),
            (READ, "readonly"),
            (FAST, "fast"),
            (BLOCKING, "blocking"),
            (ADMIN, "admin"),
            (PUBSUB, "pubsub"),
        ];
        let flags = self.flags;
        names.into_iter().filter_map(move |(flag, name)| (flags & flag != 0).then_some(name))
    }
}

/// One connection's state.
pub struct Session {
    /// Whose connection it is.
    pub server: Arc<Server>,
    /// As others see it; nobody while a log is read again.
    pub client: Option<Arc<Client>>,
    /// Replies that have not been sent.
    pub reply: Reply,
    /// The selected database.
    pub number: usize,
    /// When the commands under way arrived. 0 while a log is read: nothing expires then but by what
    /// the log says.
    pub now: Time,
    /// What becomes of the connection.
    pub after: After,
    /// The command cannot be answered yet.
    pub wait: Option<Wait>,
    /// Where replies go of one that has subscribed.
    pub outbox: Option<Arc<Outbox>>,
    /// Sends what is put there.
    pub sender: Option<JoinHandle<()>>,
    /// What it has subscribed to.
    pub channels: BTreeSet<Box<[u8]>>,
    /// The same, for patterns.
    pub patterns: BTreeSet<Box<[u8]>>,
    /// Where in `reply` the replies begin that tell of changes.
    pub changed_from: Option<usize>,
    /// Commands run that the server has not counted yet.
    pub uncounted: u64,
    /// The command that ran last.
    pub last: Option<&'static Command>,
}

impl Session {
    /// For `client`.
    pub fn new(server: &Arc<Server>, client: Arc<Client>) -> Session {
        Session { client: Some(client), now: crate::data::key::now(), ..Session::replaying(server) }
    }

    /// For commands from a log.
    pub fn replaying(server: &Arc<Server>) -> Session {
        Session {
            server: Arc::clone(server),
            client: None,
            reply: Reply::default(),
            number: 0,
            now: 0,
            after: After::Next,
            wait: None,
            outbox: None,
            sender: None,
            channels: BTreeSet::new(),
            patterns: BTreeSet::new(),
            changed_from: None,
            uncounted: 0,
            last: None,
        }
    }

    /// The databases.
    pub fn databases(&self) -> &Databases {
        &self.server.databases
    }

    /// Where a key belongs.
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.server.databases.key(bytes)
    }

    /// How many channels and patterns it has subscribed to.
    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Tells a subscriber what was gathered: what is published meanwhile comes behind it.
    pub fn hand_over(&mut self) {
        if let Some(outbox) = &self.outbox
            && !self.reply.bytes.is_empty()
        {
            let bytes = self.reply.bytes.split();
            outbox.put(|_| &bytes);
            self.changed_from = None;
        }
    }

    /// Takes back all subscriptions.
    pub fn unsubscribe_all(&mut self) {
        let Some(outbox) = &self.outbox else { return };
        for (to, names) in [(To::Channel, &mut self.channels), (To::Pattern, &mut self.patterns)] {
            for name in std::mem::take(names) {
                self.server.channels.unsubscribe(to, &name, outbox, b"");
            }
        }
    }

    /// Says to the others what it does.
    pub fn show(&mut self) {
        self.server.stats.commands.fetch_add(std::mem::take(&mut self.uncounted), Relaxed);
        if let Some(client) = &self.client {
            client.active.store(self.now, Relaxed);
            client.told().command = self.last.map_or(FIRST_COMMAND, |command| command.name);
        }
    }
}

/// The error for `name` with too few or too many arguments.
pub fn wrong_arity(name: &str) -> Cow<'static, str> {
    format!("wrong number of arguments for '{name}' command").into()
}

/// As C prints it.
pub fn until_nul(text: &[u8]) -> Cow<'_, str> {
    let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end])
}
