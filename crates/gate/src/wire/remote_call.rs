//! A call of a gate of another machine, as the border of this one receives it: the payload of a
//! request to the border's own gate.
//!
//! ```text
//! 0  version u8   1  kind u8   2  1: types are given   3  length of the machine u8
//! 4  length of the gate u8     5  types u64, little-endian   13  machine, gate, payload
//! ```

use crate::error::{Error, ErrorKind};

/// Name of the gate at which the border serves the programs of its machine.
pub const BORDER: &str = "kumihimo.border";
/// Name of the gate of the border for streams.
pub const BORDER_STREAMS: &str = "kumihimo.border.streams";
/// In place of a machine: any that serves the gate.
pub const ANY: &str = "*";

const VERSION: u8 = 1;
const FIXED: usize = 13;

/// What is wanted of the other machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum RemoteKind {
    /// Whether the gate is there, with these types.
    Probe = 0,
    /// A call.
    Call = 1,
    /// A request without a reply.
    Send = 2,
    /// A request with a stream of replies.
    Stream = 3,
}

/// A call with its destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RemoteCall<'a> {
    /// What is wanted.
    pub kind: RemoteKind,
    /// Name of the machine, or [`ANY`].
    pub machine: &'a str,
    /// Name of the gate.
    pub gate: &'a str,
    /// Hash of its types; `None` for a gate of bytes.
    pub types: Option<u64>,
    /// The request.
    pub payload: &'a [u8],
}

impl RemoteKind {
    /// Returns the kind with this number.
    #[must_use]
    pub fn of_number(number: u8) -> Option<RemoteKind> {
        let all = [RemoteKind::Probe, RemoteKind::Call, RemoteKind::Send, RemoteKind::Stream];
        all.get(usize::from(number)).copied()
    }
}

impl<'a> RemoteCall<'a> {
    /// Returns the call as bytes. Names are at most 200 bytes long.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (machine, gate) = (self.machine.as_bytes(), self.gate.as_bytes());
        let mut bytes = Vec::with_capacity(FIXED + machine.len() + gate.len() + self.payload.len());
        let lengths = [machine.len() as u8, gate.len() as u8];
        bytes.extend_from_slice(&[VERSION, self.kind as u8, self.types.is_some().into()]);
        bytes.extend_from_slice(&lengths);
        bytes.extend_from_slice(&self.types.unwrap_or(0).to_le_bytes());
        bytes.extend_from_slice(machine);
        bytes.extend_from_slice(gate);
        bytes.extend_from_slice(self.payload);
        bytes
    }

    /// Reads a call.
    ///
    /// # Errors
    /// Returns [`ErrorKind::Malformed`], or [`ErrorKind::Version`] for another version.
    pub fn decode(bytes: &'a [u8]) -> Result<RemoteCall<'a>, Error> {
        let malformed =
            || Error::new(ErrorKind::Malformed, "what the border received is no remote call");
        match bytes.first() {
            Some(&VERSION) => {}
            Some(version) => {
                return Err(Error::new(
                    ErrorKind::Version,
                    format!(
                        "the program uses version {version} of remote calls, and the border version {VERSION}: use the same version of Kumihimo"
                    ),
                ));
            }
            None => return Err(malformed()),
        }
        let (fixed, rest) = bytes.split_at_checked(FIXED).ok_or_else(malformed)?;
        let kind = RemoteKind::of_number(fixed[1]).ok_or_else(malformed)?;
        let mut types = [0; 8];
        types.copy_from_slice(&fixed[5..]);
        let types = match fixed[2] {
            0 => None,
            1 => Some(u64::from_le_bytes(types)),
            _ => return Err(malformed()),
        };
        let (machine, rest) = rest.split_at_checked(fixed[3].into()).ok_or_else(malformed)?;
        let (gate, payload) = rest.split_at_checked(fixed[4].into()).ok_or_else(malformed)?;
        let text = |name: &'a [u8]| str::from_utf8(name).map_err(|_| malformed());
        Ok(RemoteCall { kind, machine: text(machine)?, gate: text(gate)?, types, payload })
    }
}

#[cfg(test)]
mod tests;
