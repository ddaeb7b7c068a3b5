//! Executes a request: finds the command, checks whether it may run, and runs it.

use kumihimo::sync::Arc;

use super::{FULL, table};
use crate::budget::EXCEEDED;
use crate::log::REFUSED;
use crate::protocol::reply::Version;
use crate::protocol::request::Args;
use crate::session::{self, After, Answer, Command, Session, shown, until_nul, wrong_arity};

/// Commands that may add more than this are counted before they run.
const LARGE_WRITE: usize = 256 << 10;

/// Returns whether an append log may have the command `name`: it changes data in the same way
/// whenever it runs, or it selects the database.
pub fn is_logged(name: &[u8]) -> bool {
    table::find(name).is_some_and(|command| {
        command.has(session::WRITE) && !command.has(session::BLOCKING) || command.name == "select"
    })
}

impl Session {
    /// Runs one command and appends its reply to the replies.
    pub fn run(&mut self, args: Args<'_>) {
        let start = self.reply.bytes.len();
        if let Err(error) = self.try_run(args) {
            self.reply.error(&error);
        }
        if self.reply.refused {
            self.refuse(start);
        }
    }

    /// Replaces the reply to the current command, which does not fit, by an error.
    #[cold]
    fn refuse(&mut self, start: usize) {
        // A command on subscriptions hands the earlier replies over.
        self.reply.bytes.truncate(start);
        self.reply.refused = false;
        self.reply.error(EXCEEDED);
        if let Some(client) = &self.client {
            self.server.clients.make_room(client);
        }
    }

    fn try_run(&mut self, args: Args<'_>) -> Answer {
        let name = args.at(0);
        let last = self.last.filter(|last| last.name.as_bytes().eq_ignore_ascii_case(name));
        let Some(command) = last.or_else(|| table::find(name)) else {
            return self.unknown(args);
        };
        self.last = Some(command);
        self.uncounted += 1;
        if !command.takes(args.len()) {
            return Err(wrong_arity(command.name));
        }
        if !self.authenticated && !command.has(session::NO_AUTH) {
            return Err("NOAUTH Authentication required.".into());
        }
        if self.subscriptions() > 0
            && self.reply.version == Version::Two
            && !command.has(session::SUBSCRIBED)
        {
            return Err(format!(
                "Can't execute '{}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context",
                command.name
            )
            .into());
        }
        if command.has(session::WRITE) {
            let server = &self.server;
            if command.has(session::GROWS) && server.is_full(args.growth()) && self.client.is_some()
            {
                return Err(FULL.into());
            }
            if let Some(log) = server.databases.shared.log.get() {
                if log.is_failing() {
                    return Err(format!("{REFUSED}: {}", log.failure().unwrap_or_default()).into());
                }
                self.changed_from.get_or_insert(self.reply.bytes.len());
            }
        }
        if command.has(session::GROWS) && args.growth() > LARGE_WRITE {
            return self.run_large(command, args);
        }
        (command.run)(self, args)
    }

    /// Runs a command that adds much data. Counts that before, so that many such commands at once
    /// do not exceed the limit together.
    fn run_large(&mut self, command: &Command, args: Args<'_>) -> Answer {
        let server = Arc::clone(&self.server);
        let shared = &server.databases.shared;
        shared.count(0, args.growth());
        let full = server.is_full(0) && self.client.is_some();
        let answer = if full { Err(FULL.into()) } else { (command.run)(self, args) };
        shared.count(args.growth(), 0);
        answer
    }

    fn unknown(&mut self, args: Args<'_>) -> Answer {
        let name = args.at(0);
        if name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:") {
            // Cross-protocol attack: a web page can make a browser send HTTP requests here. Redis
            // closes such connections, too.
            eprintln!("kv: a client sent an HTTP request and is disconnected");
            self.after = After::Drop;
            return Ok(());
        }
        let mut listed = String::new();
        for arg in args.from(1) {
            if listed.len() >= 128 {
                break;
            }
            let text = until_nul(&arg[..arg.len().min(128 - listed.len())]);
            listed.push('\'');
            listed.push_str(&text);
            listed.push_str("' ");
        }
        let name = shown(&name[..name.len().min(128)]);
        Err(format!("unknown command '{name}', with args beginning with: {listed}").into())
    }

    /// Runs a command from an append log.
    ///
    /// # Errors
    /// If no server can have written it there: a command that changes no data, which does not run,
    /// or one that fails.
    pub fn replay(&mut self, args: Args<'_>) -> Result<(), String> {
        if !is_logged(args.at(0)) {
            return Err(format!("'{}' is no command of a log", shown(args.at(0))));
        }
        self.run(args);
        let error = self.reply.bytes.strip_prefix(b"-").map(|error| {
            format!("'{}' fails: {}", shown(args.at(0)), shown(error.trim_ascii_end()))
        });
        self.reply.bytes.clear();
        error.map_or(Ok(()), Err)
    }
}
