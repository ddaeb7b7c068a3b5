//! The state of one connection between two commands, and the type of a command.
//!
//! A [`Command`] is a row of the table in `commands`. Its function receives the session and the
//! arguments, and writes its reply into the session. `wait.rs` describes a command that waits for
//! an item.
//!
//! Uses the server, its clients and data. The commands and their dispatch stand above.

pub mod wait;

use std::borrow::Cow;
use std::collections::BTreeSet;

use kumihimo::sync::Arc;
use kumihimo::sync::atomic::Ordering::Relaxed;
use kumihimo::thread::{self, JoinHandle};

use crate::budget::Share;
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

/// Result of a command: `Ok` if the reply is written, otherwise the error to reply with.
pub type Answer = Result<(), Cow<'static, str>>;

/// State of the connection after a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// The next command is read.
    #[default]
    Next,
    /// The connection is closed after the reply.
    Close,
    /// The connection is closed without a reply to this command.
    Drop,
}

/// The command may change data: refused while the log cannot be written.
pub const WRITE: u16 = 1;
/// The command may increase memory use: refused beyond `maxmemory`.
pub const GROWS: u16 = 2;
/// The command reads data.
pub const READ: u16 = 4;
/// The command runs in constant or logarithmic time.
pub const FAST: u16 = 8;
/// A RESP2 client with subscriptions may use the command.
pub const SUBSCRIBED: u16 = 16;
/// The command may wait.
pub const BLOCKING: u16 = 32;
/// The command administers the server.
pub const ADMIN: u16 = 64;
/// The command publishes or subscribes.
pub const PUBSUB: u16 = 128;
/// A client that has not authenticated may use the command.
pub const NO_AUTH: u16 = 256;

/// A command.
pub struct Command {
    /// Name in lower case.
    pub name: &'static str,
    /// Number of words including the name. A negative number is a minimum.
    pub arity: i64,
    /// Combination of the flags above.
    pub flags: u16,
    /// Position of the first key, of the last key (negative: from the end), and the step between
    /// keys.
    pub keys: (i64, i64, i64),
    /// Group in `COMMAND DOCS`.
    pub group: &'static str,
    /// One-line description.
    pub summary: &'static str,
    /// Runs the command.
    pub run: fn(&mut Session, Args<'_>) -> Answer,
}

impl Command {
    /// Returns whether the command accepts this number of words.
    pub fn takes(&self, words: usize) -> bool {
        if self.arity < 0 { words as i64 >= -self.arity } else { words as i64 == self.arity }
    }

    /// Returns whether `flag` is set.
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// Names of the flags, as in the reply to `COMMAND`.
    pub fn kinds(&self) -> impl Iterator<Item = &'static str> + Clone {
        let names = [
            (WRITE, "write"),
            (GROWS, "denyoom"),
            (READ, "readonly"),
            (FAST, "fast"),
            (BLOCKING, "blocking"),
            (ADMIN, "admin"),
            (PUBSUB, "pubsub"),
            (NO_AUTH, "no_auth"),
        ];
        let flags = self.flags;
        names.into_iter().filter_map(move |(flag, name)| (flags & flag != 0).then_some(name))
    }
}

/// One connection's state.
pub struct Session {
    /// The server of the connection.
    pub server: Arc<Server>,
    /// The client as other clients see it; `None` while a log is replayed.
    pub client: Option<Arc<Client>>,
    /// Replies that have not been sent.
    pub reply: Reply,
    /// The selected database.
    pub number: usize,
    /// Time at which the current batch of commands arrived. It is 0 during replay: keys then expire
    /// only by `DEL` records in the log.
    pub now: Time,
    /// State of the connection after the current command.
    pub after: After,
    /// Set if the reply to the current command has to wait for an item.
    pub wait: Option<Wait>,
    /// Outbox for all replies, once the client has subscribed to a channel.
    pub outbox: Option<Arc<Outbox>>,
    /// Microprocess that sends the outbox.
    pub sender: Option<JoinHandle<()>>,
    /// Subscribed channels.
    pub channels: BTreeSet<Box<[u8]>>,
    /// Subscribed patterns.
    pub patterns: BTreeSet<Box<[u8]>>,
    /// Counted memory of the subscriptions.
    pub subscribed: Share,
    /// Position in `reply` of the first reply to a command that changed data.
    pub changed_from: Option<usize>,
    /// Number of commands that are not yet included in the server's statistics.
    pub uncounted: u64,
    /// True if the client has given the password, or none is required.
    pub authenticated: bool,
    /// The command that ran last.
    pub last: Option<&'static Command>,
}

impl Session {
    /// Creates the session of `client`.
    pub fn new(server: &Arc<Server>, client: Arc<Client>) -> Session {
        let authenticated = server.settings.password.is_none();
        let now = crate::data::key::now();
        let share = || Share::new(&client.account);
        let (reply, subscribed) = (Reply::limited(share()), share());
        Session {
            client: Some(client),
            now,
            authenticated,
            reply,
            subscribed,
            ..Session::replaying(server)
        }
    }

    /// Creates a session that replays a log.
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
            subscribed: Share::default(),
            changed_from: None,
            uncounted: 0,
            authenticated: true,
            last: None,
        }
    }

    /// The server's databases.
    pub fn databases(&self) -> &Databases {
        &self.server.databases
    }

    /// Hashes a key.
    pub fn key<'k>(&self, bytes: &'k [u8]) -> Key<'k> {
        self.server.databases.key(bytes)
    }

    /// Number of subscribed channels and patterns.
    pub fn subscriptions(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Moves the collected replies into a subscriber's outbox. Messages published later are queued
    /// after them.
    pub fn hand_over(&mut self) {
        if let Some(outbox) = &self.outbox
            && !self.reply.bytes.is_empty()
        {
            let bytes = self.reply.bytes.split();
            outbox.put(|_| &bytes);
            self.reply.release();
            self.changed_from = None;
        }
    }

    /// Lets other microprocesses run in the middle of a long command, while it holds no lock.
    ///
    /// # Errors
    /// If the client is being disconnected.
    pub fn pause(&mut self) -> Answer {
        self.step_aside();
        if self.client.as_ref().is_some_and(|client| client.is_killed()) {
            self.after = After::Drop;
            return Err("the client is disconnected".into());
        }
        Ok(())
    }

    /// Lets other microprocesses run in the middle of a long command that cannot be given up, while
    /// it holds no lock that they need.
    pub fn step_aside(&mut self) {
        self.show();
        thread::yield_now();
    }

    /// Removes all subscriptions.
    pub fn unsubscribe_all(&mut self) {
        let Some(outbox) = &self.outbox else { return };
        for (to, names) in [(To::Channel, &mut self.channels), (To::Pattern, &mut self.patterns)] {
            for name in std::mem::take(names) {
                self.server.channels.unsubscribe(to, &name, outbox, b"");
            }
        }
    }

    /// Updates the properties of the client that other clients can see.
    pub fn show(&mut self) {
        self.server.stats.commands.fetch_add(std::mem::take(&mut self.uncounted), Relaxed);
        if let Some(client) = &self.client {
            client.active.store(self.now, Relaxed);
            client.told().command = self.last.map_or(FIRST_COMMAND, |command| command.name);
        }
    }
}

/// The error for a wrong number of arguments to `name`.
pub fn wrong_arity(name: &str) -> Cow<'static, str> {
    format!("wrong number of arguments for '{name}' command").into()
}

/// The beginning of a text from a client, for messages: at most 1 KiB, up to the first NUL.
pub fn shown(text: &[u8]) -> Cow<'_, str> {
    until_nul(&text[..text.len().min(1024)])
}

/// The text up to its first NUL byte, as C's `%s` prints it.
pub fn until_nul(text: &[u8]) -> Cow<'_, str> {
    let end = text.iter().position(|&b| b == 0).unwrap_or(text.len());
    String::from_utf8_lossy(&text[..end])
}
