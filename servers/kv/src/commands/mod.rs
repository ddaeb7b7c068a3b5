//! What the commands do, by what they are about. Semantics and errors are Redis 7.0's:
//! <https://redis.io/commands>.

pub mod client;
pub mod introspect;
pub mod keys;
pub mod lists;
pub mod pubsub;
pub mod server;
pub mod strings;

use std::borrow::Cow;

use crate::request::integer;
use crate::session::until_nul;

/// A number from a client.
pub fn number(text: &[u8]) -> Result<i64, Cow<'static, str>> {
    integer(text).ok_or(Cow::Borrowed("value is not an integer or out of range"))
}

/// The error for words that are not as they should be.
pub const SYNTAX: Cow<'static, str> = Cow::Borrowed("syntax error");

/// The error for a subcommand that there is not.
pub fn no_subcommand(of: &str, name: &[u8]) -> Cow<'static, str> {
    let name = until_nul(&name[..name.len().min(128)]);
    format!("unknown subcommand '{name}'. Try {of} HELP.").into()
}
