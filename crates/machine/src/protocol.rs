//! Protocol of the control socket: one JSON object per line.
//!
//! ```text
//! server: {"protocol":1,"version":"0.1.0","space":12}
//! client: {"protocol":1,"ask":"microprocesses"}
//! server: {"id":"12.microprocess.0.0",...}            one line per item
//! server: {"end":1}                                   end of the answer, with its number of items
//! client: {"protocol":1,"ask":"act","id":"12.microprocess.3.1","action":"suspend"}
//! server: {"error":{"kind":"stale","message":"..."}}  instead of, or after, items
//! ```
//! A client without permission receives an error instead of the greeting. Each side ignores fields
//! that it does not support; a change that must not be ignored needs a new protocol number. In a
//! trace, each line `{"bytes":4096}` is followed by that number of bytes.

use kumihimo_resource::id::{Id, Kind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::handler::{Action, Done, Refused};
use crate::locks::MOST_LOCKS;
use crate::profile::ProfileQuery;
use crate::top::TopQuery;

/// Version of the protocol. It changes whenever an older peer would misinterpret a message.
pub const PROTOCOL: u32 = 1;
/// Name of the kernel thread that answers for an address space.
pub(crate) const CONTROL_THREAD: &str = "kumi-control";
/// Length of the longest request line in bytes, without its end.
pub const LONGEST_REQUEST: usize = 64 << 10;
/// Length of the longest answer line in bytes. The backtrace of a deep recursion is one line.
pub const LONGEST_ANSWER: usize = 16 << 20;
/// Largest number of bytes that follow one line.
pub const MOST_BYTES: usize = 1 << 20;

/// The server's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// [`PROTOCOL`] of the server.
    pub protocol: u32,
    /// Version of the server's library.
    #[serde(default)]
    pub version: String,
    /// Number of the server's address space.
    #[serde(default)]
    pub space: u16,
}

/// A client's request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub enum Request {
    /// Describes the address space.
    Space,
    /// Lists all microprocesses.
    Microprocesses,
    /// Describes one microprocess.
    Microprocess {
        /// The microprocess.
        id: Id,
    },
    /// Lists the usage table.
    Resources {
        /// Only rows of the kind with this name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
    },
    /// Performs an action on a microprocess.
    Act {
        /// The microprocess.
        id: Id,
        /// The action.
        action: Action,
    },
    /// Returns the backtrace of a microprocess.
    Backtrace {
        /// The microprocess.
        id: Id,
    },
    /// Lists totals, and some microprocesses with their counters.
    Top {
        /// What is asked for.
        #[serde(flatten)]
        query: TopQuery,
    },
    /// Lists totals, locks with their holders and waiters, and chains of waits.
    Locks {
        /// Number of locks, and of chains.
        #[serde(default = "all")]
        limit: u32,
    },
    /// Lists all metrics.
    Metrics,
    /// Returns the trace recorded so far.
    Trace,
    /// Samples the microprocesses, and sends what it finds meanwhile.
    Profile {
        /// What is profiled.
        #[serde(flatten)]
        query: ProfileQuery,
    },
}

/// The default limit of [`Request::Locks`].
fn all() -> u32 {
    MOST_LOCKS
}

#[derive(Serialize)]
struct Envelope<'a> {
    protocol: u32,
    #[serde(flatten)]
    ask: &'a Request,
}

#[derive(Deserialize)]
struct Version {
    protocol: u32,
}

impl Request {
    /// Returns the request as a line.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut line = Vec::new();
        put(&mut line, &Envelope { protocol: PROTOCOL, ask: self });
        line
    }

    /// Parses a request from a line.
    ///
    /// # Errors
    /// Returns `Unsupported` if the line uses another protocol, and `Invalid` if it is not a
    /// request.
    pub fn parse(line: &[u8]) -> Result<Request, Refused> {
        let invalid = |e: serde_json::Error| Refused::Invalid(format!("invalid request: {e}"));
        let Version { protocol } = serde_json::from_slice(line).map_err(invalid)?;
        if protocol != PROTOCOL {
            return Err(Refused::Unsupported(format!(
                "the request uses protocol {protocol}, but this address space (Kumihimo {}) uses protocol {PROTOCOL}: use a kumi of the same version",
                env!("CARGO_PKG_VERSION")
            )));
        }
        serde_json::from_slice(line).map_err(invalid)
    }
}

/// Returns the kind that a request names.
///
/// # Errors
/// Returns `Invalid` if there is no kind with that name.
pub fn kind(name: Option<&str>) -> Result<Option<Kind>, Refused> {
    name.map(str::parse)
        .transpose()
        .map_err(|e: kumihimo_resource::id::IdError| Refused::Invalid(e.to_string()))
}

/// The single item of the answer to an action.
#[derive(Debug, Serialize, Deserialize)]
pub struct ActionResult {
    /// The result of the action.
    pub done: Done,
}

/// The single item of an answer that is a text.
#[derive(Debug, Serialize, Deserialize)]
pub struct Text {
    /// The text.
    pub text: String,
}

/// A line that is followed by bytes.
#[derive(Debug, Serialize, Deserialize)]
pub struct Bytes {
    /// The number of bytes, at most [`MOST_BYTES`].
    pub bytes: usize,
}

/// The last line of an answer.
#[derive(Debug, Serialize, Deserialize)]
struct Ending {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<serde_json::Value>,
}

/// Appends `item` as a line.
pub fn put(to: &mut Vec<u8>, item: &impl Serialize) {
    let before = to.len();
    if serde_json::to_writer(&mut *to, item).is_err() {
        // No type of this crate fails to serialise. Half a line would be parsed as a whole one, so
        // it is removed.
        to.truncate(before);
        return;
    }
    to.push(b'\n');
}

/// Appends the end of an answer with `count` items.
pub fn put_end(to: &mut Vec<u8>, count: u64) {
    put(to, &Ending { end: Some(count), error: None });
}

/// Appends the error that ends an answer.
pub fn put_error(to: &mut Vec<u8>, error: &Refused) {
    put(to, &Ending { end: None, error: serde_json::to_value(error).ok() });
}

/// A line of an answer.
#[derive(Debug)]
pub enum Line<T> {
    /// An item.
    Item(T),
    /// The end of the answer, with its number of items.
    End(u64),
    /// An error, which ends the answer.
    Error(Refused),
}

impl<T: DeserializeOwned> Line<T> {
    /// Parses a line without its end.
    ///
    /// # Errors
    /// Returns the reason if the line is neither an item nor an end.
    pub fn parse(line: &[u8]) -> Result<Line<T>, String> {
        let item = match serde_json::from_slice(line) {
            Ok(item) => return Ok(Line::Item(item)),
            Err(e) => e,
        };
        match serde_json::from_slice(line) {
            Ok(Ending { error: Some(error), .. }) => Ok(Line::Error(refused(error))),
            Ok(Ending { end: Some(count), .. }) => Ok(Line::End(count)),
            _ => Err(item.to_string()),
        }
    }
}

/// Parses an error. An error kind that only a later version has becomes `Failed`.
fn refused(error: serde_json::Value) -> Refused {
    let message =
        error.get("message").and_then(|message| message.as_str()).unwrap_or("refused").to_owned();
    serde_json::from_value(error).unwrap_or(Refused::Failed(message))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::handler::Microprocess;
    use crate::profile::ProfileKind;

    fn id() -> Id {
        "12.microprocess.3.1".parse().unwrap()
    }

    #[test]
    fn requests_survive_a_round_trip() {
        for ask in [
            Request::Space,
            Request::Microprocesses,
            Request::Microprocess { id: id() },
            Request::Resources { kind: None },
            Request::Resources { kind: Some("timer".into()) },
            Request::Act { id: id(), action: Action::Suspend },
            Request::Act { id: id(), action: Action::Priority(63) },
            Request::Backtrace { id: id() },
            Request::Top { query: TopQuery { limit: 20, exact: Some(true), ..Default::default() } },
            Request::Locks { limit: 7 },
            Request::Metrics,
            Request::Trace,
            Request::Profile { query: ProfileQuery { rate: 99, ..ProfileQuery::default() } },
            Request::Profile {
                query: ProfileQuery {
                    kind: ProfileKind::OffCpu,
                    rate: 10,
                    milliseconds: Some(500),
                },
            },
        ] {
            let line = ask.line();
            assert_eq!(line.iter().filter(|byte| **byte == b'\n').count(), 1);
            assert_eq!(Request::parse(&line), Ok(ask));
        }
    }

    #[test]
    fn unknown_fields_are_ignored_and_unknown_requests_are_not() {
        assert_eq!(
            Request::parse(br#"{"protocol":1,"ask":"space","later":[1]}"#),
            Ok(Request::Space)
        );
        for (line, says) in [
            (&br#"{"protocol":1,"ask":"dance"}"#[..], "dance"),
            (br#"{"ask":"space"}"#, "protocol"),
            (br#"{"protocol":1}"#, "ask"),
            (br#"{"protocol":1,"ask":"microprocess","id":"nonsense"}"#, "nonsense"),
            (br#"{"protocol":1,"ask":"act","id":"1.microprocess.0.0","action":"dance"}"#, "dance"),
            (br#"{"protocol":-1,"ask":"space"}"#, "-1"),
            (b"[]", ""),
            (b"", ""),
            (b"\xff", ""),
        ] {
            match Request::parse(line) {
                Err(Refused::Invalid(text)) => assert!(text.contains(says), "{text}"),
                other => panic!("{other:?}"),
            }
        }
        let Err(Refused::Unsupported(text)) = Request::parse(br#"{"protocol":2,"ask":"space"}"#)
        else {
            panic!()
        };
        assert!(text.contains("protocol 2") && text.contains("protocol 1"), "{text}");
    }

    #[test]
    fn unknown_error_kinds_become_failed() {
        let line = br#"{"error":{"kind":"moved","message":"it is elsewhere"}}"#;
        let Ok(Line::Error(Refused::Failed(text))) = Line::<Microprocess>::parse(line) else {
            panic!()
        };
        assert_eq!(text, "it is elsewhere");
        for error in [
            Refused::Stale("gone".into()),
            Refused::Denied("no".into()),
            Refused::Busy(String::new()),
        ] {
            let mut line = Vec::new();
            put_error(&mut line, &error);
            let Ok(Line::Error(same)) = Line::<Microprocess>::parse(&line) else { panic!() };
            assert_eq!(same, error);
        }
    }

    proptest! {
        #[test]
        fn garbage_is_an_error_on_both_sides(line in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert!(Request::parse(&line).is_err());
            prop_assert!(Line::<Microprocess>::parse(&line).is_err());
        }

        #[test]
        fn json_like_lines_never_panic(line in r#"\{("(protocol|ask|id|end|error|kind|message|action)":([0-9]{1,20}|"[a-z0-9.]{0,12}"|null|\{\}|\[\])(,)?){0,5}\}"#) {
            let _ = Request::parse(line.as_bytes());
            let _ = Line::<Microprocess>::parse(line.as_bytes());
        }
    }
}
