//! Where the server of a gate is: on this machine, or on another one behind the border.

use kumihimo_machine::Machine;
use kumihimo_machine::border::name::check_name as check_machine;
use kumihimo_machine::gates::check_name;

use crate::error::{Error, ErrorKind};
use crate::wire::remote_call::{ANY, RemoteCall, RemoteKind};

/// A gate's name, taken apart.
pub(crate) enum Destination {
    /// A gate of this machine.
    Here(Box<str>),
    /// A gate of another machine.
    Remote(Remote),
}

/// A gate of another machine.
pub(crate) struct Remote {
    machine: Box<str>,
    gate: Box<str>,
    types: Option<u64>,
}

impl Destination {
    /// Reads `adder`, `build7/adder`, or `*/adder`, which is this machine if it serves the gate.
    pub(crate) fn parse(
        name: &str,
        types: Option<u64>,
        own: impl FnOnce() -> Result<Machine, Error>,
    ) -> Result<Destination, Error> {
        let Some((machine, gate)) = name.split_once('/') else {
            return Ok(Destination::Here(name.into()));
        };
        let invalid = |e: kumihimo_machine::client::Error| {
            Error::new(ErrorKind::Invalid, format!("gate {name:?}: {e}"))
        };
        check_name(gate).map_err(invalid)?;
        if machine == ANY {
            if own()?.gate(gate).map_err(invalid)?.is_some() {
                return Ok(Destination::Here(gate.into()));
            }
        } else {
            check_machine(machine).map_err(invalid)?;
        }
        Ok(Destination::Remote(Remote { machine: machine.into(), gate: gate.into(), types }))
    }
}

impl Remote {
    /// Returns a request as the border takes it.
    pub(crate) fn encode(&self, kind: RemoteKind, payload: &[u8]) -> Vec<u8> {
        let Remote { machine, gate, types } = self;
        RemoteCall { kind, machine, gate, types: *types, payload }.encode()
    }
}
