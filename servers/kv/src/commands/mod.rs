//! The commands, grouped by the object they concern. Semantics and errors are those of Redis 7.0:
//! <https://redis.io/commands>.
//!
//! `dispatch.rs` takes a request from a connection, finds its row in `table.rs`, and calls the
//! function there: one of `client`, `keys`, `lists`, `pubsub`, `server` or `strings`. Each writes
//! its reply into the [`Session`](crate::session::Session), or returns an error text.
//!
//! Uses the session and everything below it; no group of commands uses the table.

pub mod client;
mod dispatch;
pub mod keys;
pub mod lists;
pub mod pubsub;
pub mod server;
pub mod strings;
mod table;

use std::borrow::Cow;

use crate::protocol::request::integer;
use crate::session::shown;
pub use dispatch::is_logged;

/// Parses a number from a client.
pub fn number(text: &[u8]) -> Result<i64, Cow<'static, str>> {
    integer(text).ok_or(Cow::Borrowed("value is not an integer or out of range"))
}

/// The error for a command that would exceed `maxmemory`.
const FULL: &str = "OOM command not allowed when used memory > 'maxmemory'.";

/// The error for arguments that the command does not accept.
pub const SYNTAX: Cow<'static, str> = Cow::Borrowed("syntax error");

/// The error for an unknown subcommand.
pub fn no_subcommand(of: &str, name: &[u8]) -> Cow<'static, str> {
    let name = shown(&name[..name.len().min(128)]);
    format!("unknown subcommand '{name}'. Try {of} HELP.").into()
}
