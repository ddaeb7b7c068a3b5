//! Other machines: their names, and connections to their address spaces through the border.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::net::SocketType;
use serde::de::DeserializeOwned;

use super::Machine;
use crate::border::place::SOCKET;
use crate::border::{Ask, Epoch, Greeting, MachineName, MachineRow, MachineState, SpaceNumber};
use crate::directory::Directory;
use crate::directory::socket::{self, space};
use crate::error::Error;
use crate::handler::Refused;
use crate::socket::connection::{Connection, Failure};

/// What messages call the border.
const BORDER: &str = "the border of this machine";

/// Another machine, as it was when this value was made.
#[derive(Clone, Debug)]
pub(crate) struct Remote {
    name: Arc<str>,
    epoch: Epoch,
}

impl Remote {
    pub(super) fn server(&self, number: u16) -> String {
        format!("{} of machine {}", space(number), self.name)
    }

    /// Returns the numbers of the machine's address spaces.
    pub(super) fn spaces(
        &self,
        directory: &Directory,
        time_limit: Duration,
        deadline: Instant,
    ) -> Result<Vec<u16>, Error> {
        let ask = Ask::Spaces { machine: self.name.to_string(), epoch: self.epoch };
        let numbers: Vec<SpaceNumber> = list(directory, &ask, time_limit, deadline)?;
        Ok(numbers.into_iter().map(|SpaceNumber { space }| space).collect())
    }

    /// Connects to the control socket of address space `number`, whose greeting comes next.
    pub(super) fn connect(
        &self,
        directory: &Directory,
        number: u16,
        time_limit: Duration,
        deadline: Instant,
    ) -> Result<Connection, Error> {
        let mut connection = connect(directory, time_limit, deadline)?;
        let machine = self.name.to_string();
        let ask = Ask::Control { machine, epoch: self.epoch, space: number };
        connection.send(&ask.line()).map_err(lost)?;
        connection.server = self.server(number);
        Ok(connection)
    }

    /// Returns the error for a connection that the border has closed during an answer.
    pub(super) fn lost(&self, number: u16) -> Error {
        let server = self.server(number);
        Error::Gone(format!(
            "{server} ended during its answer, or its machine is no longer reachable"
        ))
    }
}

impl Machine {
    /// Lists this machine and those that its border knows.
    ///
    /// # Errors
    /// Returns [`Error::Unreachable`] if no border runs, and otherwise the errors of a request to
    /// an address space.
    #[doc(hidden)]
    pub fn machines(&self) -> Result<Vec<MachineRow>, Error> {
        let deadline = Instant::now() + self.time_limit;
        list(&self.directory, &Ask::Machines, self.time_limit, deadline)
    }

    /// Returns the machine with this name and its epoch, as far as the border reaches it now.
    ///
    /// # Errors
    /// Returns [`Error::Invalid`] if the border does not know the name, [`Error::Unreachable`] if
    /// it does not reach that machine or does not run, and [`Refused::Stale`] if the machine's
    /// epoch is another one.
    #[doc(hidden)]
    pub fn machine(&self, name: &MachineName) -> Result<(Machine, Epoch), Error> {
        let machines = self.machines()?;
        let Some(row) = machines.iter().find(|row| row.name == name.name) else {
            let known: Vec<&str> = machines.iter().map(|row| row.name.as_str()).collect();
            return Err(Error::Invalid(format!(
                "the border knows no machine {:?}: it knows {}",
                name.name,
                known.join(", ")
            )));
        };
        self.machine_of(row, name.epoch)
    }

    /// Returns the machine that `row` describes, and its epoch.
    ///
    /// # Errors
    /// Returns the errors of [`machine`](Machine::machine).
    #[doc(hidden)]
    pub fn machine_of(
        &self,
        row: &MachineRow,
        wanted: Option<Epoch>,
    ) -> Result<(Machine, Epoch), Error> {
        let epoch = match (row.state, row.epoch) {
            (MachineState::Own | MachineState::Reachable, Some(epoch)) => epoch,
            _ => return Err(Error::Unreachable(row.unreachable())),
        };
        if let Some(wanted) = wanted.filter(|wanted| *wanted != epoch) {
            return Err(Refused::Stale(format!(
                "epoch {wanted} of machine {} has ended: it is now {epoch}",
                row.name
            ))
            .into());
        }
        let name = row.name.as_str().into();
        let remote = Remote { name, epoch };
        let is_own = row.state == MachineState::Own;
        Ok((Machine { remote: (!is_own).then_some(remote), ..self.clone() }, epoch))
    }

    /// Returns whether this is another machine than that of the run-time directory.
    #[doc(hidden)]
    #[must_use]
    pub fn is_remote(&self) -> bool {
        self.remote.is_some()
    }
}

/// Connects to the border, and reads its greeting.
fn connect(
    directory: &Directory,
    time_limit: Duration,
    deadline: Instant,
) -> Result<Connection, Error> {
    let none = || {
        Error::Unreachable(format!(
            "no border runs in {}: start `kumi border` to reach other machines",
            directory.path().display()
        ))
    };
    if !directory.socket(SOCKET)? {
        return Err(none());
    }
    let reached = match socket::reach(directory, BORDER, SOCKET, SocketType::STREAM, deadline) {
        Err(Error::Gone(_)) => return Err(none()),
        reached => reached?,
    };
    let mut connection = Connection::new(BORDER.to_owned(), reached, time_limit, deadline)?;
    let greeting: Greeting = connection.first_line().map_err(lost)?;
    connection.check_protocol(greeting.protocol, &greeting.version).map_err(lost)?;
    Ok(connection)
}

/// Asks the border for a list.
fn list<T: DeserializeOwned>(
    directory: &Directory,
    ask: &Ask,
    time_limit: Duration,
    deadline: Instant,
) -> Result<Vec<T>, Error> {
    let mut connection = connect(directory, time_limit, deadline)?;
    let mut all = Vec::new();
    let each = &mut |_: &mut Connection, item| {
        all.push(item);
        Ok(())
    };
    connection.exchange(&ask.line(), each).map_err(lost)?;
    Ok(all)
}

fn lost(failure: Failure) -> Error {
    match failure {
        Failure::Closed => socket::gone(BORDER, "the connection was closed"),
        Failure::Error(error) => error,
    }
}
