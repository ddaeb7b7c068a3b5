//! Queries address spaces for `kumi top`, in a separate kernel thread, so that keys never wait for
//! a reply.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use kumihimo_machine::client::{Error, Machine, Neighbour};
use kumihimo_machine::handler::Action;
use kumihimo_resource::id::Id;

use super::Message;
use super::model::{Look, Sight, Wanted};
use crate::ask::each;
use crate::show::board::{self, Seen};
use crate::steer::Told;
use crate::text::short;

/// Commands of the main loop to this thread.
pub enum Order {
    /// Query these lists from now on.
    Want(Wanted),
    /// Send this request.
    Act(Id, Action),
}

/// Time limit for one address space within a query of all.
const PATIENCE: Duration = Duration::from_millis(500);

struct Looker {
    machine: Machine,
    /// The same machine with the shorter time limit.
    hasty: Machine,
    start: Instant,
    /// Path of the board, if there can be one.
    board: Option<PathBuf>,
    /// Connections, kept from query to query.
    known: BTreeMap<u16, Neighbour>,
    wanted: Wanted,
}

/// Queries periodically until the receiver of messages is gone.
pub fn run(machine: Machine, every: Duration, orders: &Receiver<Order>, to: &Sender<Message>) {
    let hasty = machine.clone().time_limit(PATIENCE);
    let board = board::path(&machine).ok();
    let mut looker = Looker {
        machine,
        hasty,
        start: Instant::now(),
        board,
        known: BTreeMap::new(),
        wanted: Wanted::default(),
    };
    let mut next = Instant::now();
    loop {
        let message = match orders.recv_timeout(next.saturating_duration_since(Instant::now())) {
            Ok(Order::Want(wanted)) => {
                let usage = wanted.usage != looker.wanted.usage;
                let mut fresh = wanted.lists.clone();
                fresh.retain(|number| usage || !looker.wanted.lists.contains(number));
                looker.wanted = wanted;
                if fresh.is_empty() {
                    continue;
                }
                Message::Look(looker.lists(&fresh))
            }
            Ok(Order::Act(id, action)) => {
                let (said, refused) = looker.act(id, action);
                if to.send(Message::Told(said, refused)).is_err() {
                    return;
                }
                Message::Look(looker.lists(&[id.location().space()]))
            }
            Err(RecvTimeoutError::Timeout) => {
                // The interval starts at the end of the last query, so that slow address spaces are
                // queried less often.
                let look = looker.whole();
                next = Instant::now() + every;
                Message::Look(look)
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if to.send(message).is_err() {
            return;
        }
    }
}

impl Looker {
    /// Queries every address space, and the selected lists.
    fn whole(&mut self) -> Look {
        let spaces = match self.hasty.spaces() {
            Ok(spaces) => spaces,
            Err(error) => return self.look(Err(error.to_string()), true),
        };
        let mut before = std::mem::take(&mut self.known);
        let all = spaces
            .into_iter()
            .map(|fresh| before.remove(&fresh.number()).unwrap_or(fresh))
            .collect();
        let wanted = &self.wanted;
        let asked = each(all, |neighbour: &mut Neighbour| sight(neighbour, true, wanted));
        self.keep(asked, true)
    }

    /// Queries the lists of these address spaces only.
    fn lists(&mut self, numbers: &[u16]) -> Look {
        let some = numbers.iter().filter_map(|number| self.known.remove(number)).collect();
        let wanted = Wanted { lists: numbers.to_vec(), usage: self.wanted.usage };
        let asked = each(some, |neighbour: &mut Neighbour| sight(neighbour, false, &wanted));
        self.keep(asked, false)
    }

    /// Keeps working connections. Failed ones are opened again in the next query; ended address
    /// spaces are removed.
    fn keep(&mut self, asked: Vec<(Neighbour, (Option<Sight>, bool))>, whole: bool) -> Look {
        let mut sights = Vec::new();
        for (neighbour, (sight, usable)) in asked {
            sights.extend(sight);
            if usable {
                self.known.insert(neighbour.number(), neighbour);
            }
        }
        self.look(Ok(sights), whole)
    }

    fn look(&self, sights: Result<Vec<Sight>, String>, whole: bool) -> Look {
        // Without a readable board there is nothing to show. `kumi doctor` prints the reason.
        let board =
            self.board.as_ref().filter(|_| whole).and_then(|path| Seen::at(path).ok().flatten());
        Look { at: self.start.elapsed(), sights, board, whole }
    }

    /// Sends a request over a separate connection, because it may take longer than a query.
    fn act(&self, id: Id, action: Action) -> (String, bool) {
        let done = self
            .machine
            .neighbour(id.location().space())
            .and_then(|mut neighbour| neighbour.act(id, action));
        match done {
            Ok(done) => (format!("{}: {}", short(id), Told(action, done)), false),
            Err(error) => (format!("{}: {error}", short(id)), true),
        }
    }
}

/// Queries one address space; `None` if it has ended. The flag is true if the connection can be
/// used again.
fn sight(neighbour: &mut Neighbour, itself: bool, wanted: &Wanted) -> (Option<Sight>, bool) {
    let mut sight =
        Sight { number: neighbour.number(), itself: None, microprocesses: None, resources: None };
    let listed = wanted.lists.contains(&sight.number);
    let mut ask = || -> Result<(), Error> {
        if itself {
            sight.itself = Some(Ok((neighbour.space()?, neighbour.metrics()?)));
        }
        if listed && wanted.usage {
            sight.resources = Some(neighbour.resources(None)?);
        } else if listed {
            sight.microprocesses = Some(neighbour.microprocesses()?);
        }
        Ok(())
    };
    match ask() {
        Ok(()) => (Some(sight), true),
        Err(Error::Gone(_)) => (None, false),
        Err(error) => {
            let usable = matches!(error, Error::Refused(_));
            sight.itself = Some(Err(error.to_string()));
            (Some(sight), usable)
        }
    }
}
