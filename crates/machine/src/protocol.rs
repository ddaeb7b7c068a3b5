//! What goes over a control socket: one JSON object a line.
//!
//! ```text
//! server: {"protocol":1,"version":"0.1.0","space":12}
//! client: {"protocol":1,"ask":"microprocesses"}
//! server: {"id":"12.microprocess.0.0",...}            one line an item, as many as there are
//! server: {"end":1}                                   that was all
//! client: {"protocol":1,"ask":"act","id":"12.microprocess.3.1","action":"suspend"}
//! server: {"error":{"kind":"stale","message":"..."}}  instead of, or after, items
//! ```
//! One that may not ask hears an error instead of the greeting. Fields that a side does not know it
//! ignores; what is new and must not be ignored is a new number of the protocol. A trace's bytes
//! follow a line that says how many: `{"bytes":4096}`.

use kumihimo_resource::id::{Id, Kind};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::handler::{Action, Done, Refused};

/// Changes whenever one side would misunderstand the other.
pub const PROTOCOL: u32 = 1;
/// Longest line of a request, its end not counted, in bytes.
pub const LONGEST_REQUEST: usize = 64 << 10;
/// Longest line of an answer, in bytes: a backtrace of a deep recursion is one line.
pub const LONGEST_ANSWER: usize = 16 << 20;
/// Most bytes that follow one line.
pub const MOST_BYTES: usize = 1 << 20;

/// The server's first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Greeting {
    /// [`PROTOCOL`] of the server.
    pub protocol: u32,
    /// Version of its library.
    #[serde(default)]
    pub version: String,
    /// Its number.
    #[serde(default)]
    pub space: u16,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "lowercase")]
pub enum Request {
    /// The address space itself.
    Space,
    /// All of them.
    Microprocesses,
    /// One of them.
    Microprocess {
        /// Which one.
        id: Id,
    },
    /// The usage table.
    Resources {
        /// Of one kind only, by its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        kind: Option<String>,
    },
    /// Something is to be done.
    Act {
        /// To which microprocess.
        id: Id,
        /// What.
        action: Action,
    },
    /// Where one is in its program.
    Backtrace {
        /// Which one.
        id: Id,
    },
    /// All that is counted.
    Metrics,
    /// The trace so far.
    Trace,
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
    /// As a line.
    #[must_use]
    pub fn line(&self) -> Vec<u8> {
        let mut line = Vec::new();
        put(&mut line, &Envelope { protocol: PROTOCOL, ask: self });
        line
    }

    /// From a line.
    ///
    /// # Errors
    /// `Unsupported`: in another protocol. `Invalid`: it is none.
    pub fn parse(line: &[u8]) -> Result<Request, Refused> {
        let invalid = |e: serde_json::Error| Refused::Invalid(format!("that is no request: {e}"));
        let Version { protocol } = serde_json::from_slice(line).map_err(invalid)?;
        if protocol != PROTOCOL {
            return Err(Refused::Unsupported(format!(
                "asked in protocol {protocol}, and this address space (Kumihimo {}) speaks protocol {PROTOCOL}: use a kumi of its version",
                env!("CARGO_PKG_VERSION")
            )));
        }
        serde_json::from_slice(line).map_err(invalid)
    }
}

/// The kind that a request names.
///
/// # Errors
/// `Invalid`: there is none of that name.
pub fn kind(name: Option<&str>) -> Result<Option<Kind>, Refused> {
    name.map(str::parse)
        .transpose()
        .map_err(|e: kumihimo_resource::id::IdError| Refused::Invalid(e.to_string()))
}

/// An item that is no list's: what became of an action.
#[derive(Debug, Serialize, Deserialize)]
pub struct ActionResult {
    /// What.
    pub done: Done,
}

/// An item that is no list's: a text.
#[derive(Debug, Serialize, Deserialize)]
pub struct Text {
    /// It.
    pub text: String,
}

/// So many bytes follow this line.
#[derive(Debug, Serialize, Deserialize)]
pub struct Bytes {
    /// At most [`MOST_BYTES`].
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
        // No type of ours fails; half a line would be taken for a whole one.
        to.truncate(before);
        return;
    }
    to.push(b'\n');
}

/// Appends the end of an answer that had `count` items.
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
    /// So many there were.
    End(u64),
    /// None, or no more.
    Error(Refused),
}

impl<T: DeserializeOwned> Line<T> {
    /// From a line without its end.
    ///
    /// # Errors
    /// Why it is neither an item nor an end.
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

/// One that a later version refuses for a reason that this one does not know has failed.
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

    fn id() -> Id {
        "12.microprocess.3.1".parse().unwrap()
    }

    #[test]
    fn requests_come_back() {
        for ask in [
            Request::Space,
            Request::Microprocesses,
            Request::Microprocess { id: id() },
            Request::Resources { kind: None },
            Request::Resources { kind: Some("timer".into()) },
            Request::Act { id: id(), action: Action::Suspend },
            Request::Act { id: id(), action: Action::Priority(63) },
            Request::Backtrace { id: id() },
            Request::Metrics,
            Request::Trace,
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
    fn an_error_of_a_later_version_is_an_error() {
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
        fn what_looks_like_json_never_panics(line in r#"\{("(protocol|ask|id|end|error|kind|message|action)":([0-9]{1,20}|"[a-z0-9.]{0,12}"|null|\{\}|\[\])(,)?){0,5}\}"#) {
            let _ = Request::parse(line.as_bytes());
            let _ = Line::<Microprocess>::parse(line.as_bytes());
        }
    }
}
