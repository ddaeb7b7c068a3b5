//! Messages between borders, in protobuf.

use std::time::Duration;

use kumihimo::gate::{self, ErrorKind};
use kumihimo_gate::remote_call::RemoteKind;
use kumihimo_machine::border::Epoch;

use crate::engine::{Call, Hello, Opening, Reply};

/// Number of levels of priority.
const LEVELS: u8 = 64;

/// What a border states about itself.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Greeting {
    #[prost(uint32, tag = "1")]
    pub(super) protocol: u32,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(fixed64, tag = "3")]
    pub(super) epoch: u64,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct SpacesRequest {
    #[prost(fixed64, tag = "1")]
    pub(super) epoch: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SpacesReply {
    #[prost(uint32, repeated, tag = "1")]
    pub(super) numbers: Vec<u32>,
}

/// A part of an exchange with a control socket. The first part from the client has the epoch and
/// the number of the address space, and no bytes.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ControlPart {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) bytes: bytes::Bytes,
    #[prost(fixed64, tag = "2")]
    pub(super) epoch: u64,
    #[prost(uint32, tag = "3")]
    pub(super) space: u32,
}

/// A call of a gate. The id has two halves.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CallRequest {
    #[prost(fixed64, tag = "1")]
    pub(super) id_high: u64,
    #[prost(fixed64, tag = "2")]
    pub(super) id_low: u64,
    #[prost(string, tag = "3")]
    pub(super) gate: String,
    #[prost(fixed64, optional, tag = "4")]
    pub(super) types: Option<u64>,
    #[prost(uint32, tag = "5")]
    pub(super) kind: u32,
    #[prost(uint32, tag = "6")]
    pub(super) level: u32,
    /// Microseconds until the caller's deadline.
    #[prost(uint64, optional, tag = "7")]
    pub(super) left: Option<u64>,
    #[prost(bytes = "bytes", tag = "8")]
    pub(super) bytes: bytes::Bytes,
}

/// The outcome of a call: bytes, or the number of an error's kind and its text.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct CallReply {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) bytes: bytes::Bytes,
    #[prost(uint32, optional, tag = "2")]
    pub(super) error: Option<u32>,
    #[prost(string, tag = "3")]
    pub(super) text: String,
}

impl From<Call> for CallRequest {
    fn from(call: Call) -> CallRequest {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        CallRequest {
            id_high: (call.id >> 64) as u64,
            id_low: call.id as u64,
            gate: call.gate,
            types: call.types,
            kind: u32::from(call.kind as u8),
            level: u32::from(call.level),
            left: call.left.map(micros),
            bytes: call.bytes,
        }
    }
}

impl CallRequest {
    /// Returns the call, unless a number in it has no meaning.
    pub(super) fn call(self) -> Option<Call> {
        let level = u8::try_from(self.level).ok().filter(|level| *level < LEVELS)?;
        Some(Call {
            id: u128::from(self.id_high) << 64 | u128::from(self.id_low),
            kind: RemoteKind::of_number(u8::try_from(self.kind).ok()?)?,
            gate: self.gate,
            types: self.types,
            level,
            left: self.left.map(Duration::from_micros),
            bytes: self.bytes,
        })
    }
}

impl From<Reply> for CallReply {
    fn from(reply: Reply) -> CallReply {
        match reply {
            Ok(bytes) => CallReply { bytes, ..CallReply::default() },
            Err(error) => CallReply {
                error: Some(u32::from(error.kind().number())),
                text: error.to_string(),
                ..CallReply::default()
            },
        }
    }
}

impl From<CallReply> for Reply {
    fn from(reply: CallReply) -> Reply {
        let Some(number) = reply.error else { return Ok(reply.bytes) };
        // A kind that only a later version has.
        let kind = u8::try_from(number).ok().and_then(ErrorKind::of_number);
        Err(gate::Error::new(kind.unwrap_or(ErrorKind::Io), reply.text))
    }
}

impl From<Hello> for Greeting {
    fn from(hello: Hello) -> Greeting {
        Greeting { protocol: hello.protocol, version: hello.version, epoch: hello.epoch.0 }
    }
}

impl From<Greeting> for Hello {
    fn from(greeting: Greeting) -> Hello {
        let Greeting { protocol, version, epoch } = greeting;
        Hello { protocol, version, epoch: Epoch(epoch) }
    }
}

impl From<Opening> for ControlPart {
    fn from(opening: Opening) -> ControlPart {
        let (epoch, space) = (opening.epoch.0, u32::from(opening.space));
        ControlPart { bytes: bytes::Bytes::new(), epoch, space }
    }
}

impl ControlPart {
    /// Returns the opening, unless the number is not that of an address space.
    pub(super) fn opening(&self) -> Option<Opening> {
        let space = u16::try_from(self.space).ok()?;
        Some(Opening { epoch: Epoch(self.epoch), space })
    }
}
