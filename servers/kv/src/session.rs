//! What a connection is in the middle of, and how a command is run in it.

use std::borrow::Cow;
use std::collections::BTreeSet;

use kumihimo::sync::Arc;
use kumihimo::sync::atomic::Ordering::Relaxed;
use kumihimo::thread::JoinHandle;

use crate::channels::{Outbox, To};
use crate::clients::Client;
use crate::command::{self, Command};
use crate::commands::lists::Wait;
use crate::database::{Databases, Key};
use crate::log::REFUSED;
use crate::reply::{Reply, Version};
use crate::request::Args;
use crate::server::Server;
use crate::shard::Time;

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
    last: &'static Command,
}

impl Session {
    /// For `client`.
    pub fn new(server: &Arc<Server>, client: Arc<Client>) -> Session {
        Session { client: Some(client), now: crate::database::now(), ..Session::replaying(server) }
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
            last: command::find(b"ping").expect("there is one"),
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

    /// Runs one command; its reply is written behind the others.
    pub fn run(&mut self, args: Args<'_>) {
        if let Err(error) = self.try_run(args) {
            self.reply.error(&error);
        }
    }

    fn try_run(&mut self, args: Args<'_>) -> Answer {
        let name = args.at(0);
        if !self.last.name.as_bytes().eq_ignore_ascii_case(name) {
            match command::find(name) {
                Some(command) => self.last = command,
                None => return self.unknown(args),
            }
        }
        let command = self.last;
        self.uncounted += 1;
        if !command.takes(args.len()) {
            return Err(wrong_arity(command.name));
        }
        if self.subscriptions() > 0
            && self.reply.version == Version::Two
            && !command.has(command::SUBSCRIBED)
        {
            return Err(format!(
                "Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                command.name
            )
            .into());
        }
        if command.has(command::WRITE) {
            let server = &self.server;
            if command.has(command::GROWS) && server.is_full() {
                return Err("OOM command not allowed when used memory > 'maxmemory'.".into());
            }
            if let Some(log) = server.databases.shared.log.get() {
                if log.is_failing() {
                    return Err(format!("{REFUSED}: {}", log.failure().unwrap_or_default()).into());
                }
                self.changed_from.get_or_insert(self.reply.bytes.len());
            }
        }
        (command.run)(self, args)
    }

    fn unknown(&mut self, args: Args<'_>) -> Answer {
        let name = args.at(0);
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            // A browser that was lured into talking to us.
            eprintln!("kv: a client speaks HTTP: cut off");
            self.after = After::Drop;
            return Ok(());
        }
        let mut shown = String::new();
        for arg in args.from(1) {
            if shown.len() >= 128 {
                break;
            }
            let text = until_nul(&arg[..arg.len().min(128 - shown.len())]);
            shown.push('\'');
            shown.push_str(&text);
            shown.push_str("' ");
        }
        let name = until_nul(&name[..name.len().min(128)]);
        Err(format!("unknown command '{name}', with args beginning with: {shown}").into())
    }

    /// Runs a command from a log. Whether it can have been written there.
    pub fn replay(&mut self, args: Args<'_>) -> bool {
        self.run(args);
        let failed = self.reply.bytes.first() == Some(&b'-')
            || self.wait.take().is_some()
            || self.after != After::Next;
        self.reply.bytes.clear();
        !failed
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
            client.told().command = self.last.name;
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
