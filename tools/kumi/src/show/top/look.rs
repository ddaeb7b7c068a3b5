//! Queries address spaces for `kumi top`, in a separate kernel thread, so that keys never wait for
//! a reply.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use kumihimo_machine::client::{Error, Machine, Neighbour};
use kumihimo_machine::handler::{Action, Refused};
use kumihimo_machine::top::{TopFind, TopQuery};
use kumihimo_resource::id::Id;

use super::answer::Answer;
use super::message::{Find, List, Listed, Look, Message, Order, Rows, Sight};
use super::once::session;
use crate::ask::each;
use crate::show::board::{self, Seen};
use crate::steer::Told;
use crate::text::short;

/// Time limit for one address space within a query of all.
const PATIENCE: Duration = Duration::from_millis(500);
/// Interval of requests that keep exact accounting on, where queries are rarer. Address spaces
/// close a connection that is silent for 10 s, which ends it.
const RENEWAL: Duration = Duration::from_secs(4);

struct Looker {
    machine: Machine,
    /// The same machine with the shorter time limit.
    hasty: Machine,
    /// IDs of the address spaces to query by number; `None` for all.
    only: Option<BTreeMap<u16, Id>>,
    session: u64,
    start: Instant,
    /// Path of the board, if there can be one.
    board: Option<PathBuf>,
    /// Connections, kept from query to query.
    known: BTreeMap<u16, Neighbour>,
    wanted: Vec<List>,
    /// While exact accounting is on: the address spaces that were told so.
    exact: Option<BTreeMap<u16, Exact>>,
}

/// Exact accounting of an address space.
#[derive(Clone, Copy)]
struct Exact {
    /// Whether it was off before. An address space of an older version keeps no record of sessions,
    /// so that it is turned off only then.
    was_off: bool,
    /// Whether the request was made over the present connection, with whose end it ends.
    is_current: bool,
}

/// Queries periodically until the sender of orders or the receiver of messages is gone. Then turns
/// exact accounting off where this turned it on.
pub fn run(
    machine: Machine,
    only: Option<BTreeMap<u16, Id>>,
    every: Duration,
    orders: &Receiver<Order>,
    to: &Sender<Message>,
) {
    let hasty = machine.clone().time_limit(PATIENCE);
    // The cores of another machine have a board of their own, which only processes there map.
    let board = board::path(&machine).ok().filter(|_| !machine.is_remote());
    let mut looker = Looker {
        machine,
        hasty,
        only,
        session: session(),
        start: Instant::now(),
        board,
        known: BTreeMap::new(),
        wanted: Vec::new(),
        exact: None,
    };
    let mut next = Instant::now();
    let mut pending = None;
    loop {
        let mut wait = next.saturating_duration_since(Instant::now());
        if looker.exact.is_some() && wait > RENEWAL {
            wait = RENEWAL;
        }
        let order = match pending.take().map_or_else(|| orders.recv_timeout(wait), Ok) {
            Ok(order) => order,
            Err(RecvTimeoutError::Timeout) if Instant::now() < next => {
                looker.renew();
                continue;
            }
            Err(RecvTimeoutError::Timeout) => {
                // The interval starts at the end of the last query, so that slow address spaces are
                // queried less often.
                let look = looker.whole();
                next = Instant::now() + every;
                if to.send(Message::Look(look)).is_err() {
                    break;
                }
                continue;
            }
            Err(RecvTimeoutError::Disconnected) => break,
        };
        if !looker.obey(order, orders, &mut pending, to) {
            break;
        }
    }
    looker.account(false);
}

impl Looker {
    /// Follows an order. Returns false if the receiver of messages is gone. `pending` is an order
    /// that was received, but is still to be followed.
    fn obey(
        &mut self,
        order: Order,
        orders: &Receiver<Order>,
        pending: &mut Option<Order>,
        to: &Sender<Message>,
    ) -> bool {
        let message = match order {
            Order::Want(mut wanted) => {
                // Of the windows that a held key passes, only the last one is queried.
                for order in orders.try_iter() {
                    match order {
                        Order::Want(later) => wanted = later,
                        other => {
                            *pending = Some(other);
                            break;
                        }
                    }
                }
                let before = std::mem::replace(&mut self.wanted, wanted);
                let mut fresh = self.wanted.clone();
                fresh.retain(|list| !before.contains(list));
                if fresh.is_empty() {
                    return true;
                }
                Message::Look(self.lists(&fresh))
            }
            Order::Act(id, action) => {
                let (said, refused) = self.act(id, action);
                if to.send(Message::Told(said, refused)).is_err() {
                    return false;
                }
                let number = id.location().space();
                let lists: Vec<List> =
                    self.wanted.iter().filter(|list| list.number == number).cloned().collect();
                Message::Look(self.lists(&lists))
            }
            Order::Backtrace(id) => match self.backtrace(id) {
                Ok(text) => Message::Backtrace(id, text),
                Err(error) => Message::Told(format!("{}: {error}", short(id)), true),
            },
            Order::Find(find) => self.find(&find),
            Order::Exact(on) => {
                self.account(on);
                let said = if on { "CPU time is accounted exactly" } else { "CPU time is sampled" };
                Message::Told(said.to_owned(), false)
            }
        };
        to.send(message).is_ok()
    }

    /// Queries every address space, and the selected lists.
    fn whole(&mut self) -> Look {
        let spaces = match self.hasty.spaces() {
            Ok(spaces) => spaces,
            Err(error) => return self.look(Err(error.to_string()), true),
        };
        let mut before = std::mem::take(&mut self.known);
        let mut all = Vec::new();
        for fresh in spaces {
            if self.only.as_ref().is_some_and(|only| !only.contains_key(&fresh.number())) {
                continue;
            }
            let kept = before.remove(&fresh.number());
            if kept.is_none() {
                self.reopened(fresh.number());
            }
            all.push(kept.unwrap_or(fresh));
        }
        let (wanted, session, only) = (&self.wanted, self.session, &self.only);
        let asked = each(all, |neighbour: &mut Neighbour| {
            let number = neighbour.number();
            let list = wanted.iter().find(|list| list.number == number);
            let id = only.as_ref().and_then(|only| only.get(&number).copied());
            sight(neighbour, list, session, Some(Itself { id }))
        });
        let look = self.keep(asked, true);
        if self.exact.is_some() {
            self.account(true);
        }
        look
    }

    /// Queries these lists only. The interval of the rates goes on meanwhile.
    fn lists(&mut self, lists: &[List]) -> Look {
        let of = |list: &List| Some((self.known.remove(&list.number)?, list.clone()));
        let some: Vec<(Neighbour, List)> = lists.iter().filter_map(of).collect();
        let session = self.session;
        let asked = each(some, |(neighbour, list)| sight(neighbour, Some(list), session, None));
        let asked = asked.into_iter().map(|((neighbour, _), answer)| (neighbour, answer));
        self.keep(asked.collect(), false)
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

    fn backtrace(&self, id: Id) -> Result<String, Error> {
        self.machine.neighbour(id.location().space())?.backtrace(id)
    }

    /// Searches one list after the other, and the beginning of the first one at the end.
    fn find(&mut self, find: &Find) -> Message {
        for (nth, list) in find.lists.iter().chain(find.lists.first()).enumerate() {
            let Some(neighbour) = self.known.get_mut(&list.number) else { continue };
            let from = if nth == 0 { find.from } else { 0 };
            let sought = TopFind { text: find.text.clone(), from };
            let query = TopQuery { find: Some(sought), ..list.query(self.session, true) };
            // An address space that does not answer shows its reason in its row.
            let Ok(answer) = ask(neighbour, &query) else { continue };
            if let Some(at) = answer.totals.found {
                return Message::Found(Some((list.number, at)));
            }
        }
        Message::Found(None)
    }

    /// Turns exact accounting on in all address spaces that were not told over the present
    /// connection, or off in those in which it was turned on here.
    fn account(&mut self, on: bool) {
        let told = self.exact.take().unwrap_or_default();
        let mut now = BTreeMap::new();
        for (number, neighbour) in &mut self.known {
            let before = told.get(number).copied();
            let is_due = match before {
                Some(exact) if on => !exact.is_current,
                Some(exact) => exact.was_off,
                None => on,
            };
            let mut was_off = before.is_some_and(|exact| exact.was_off);
            if is_due {
                let query = exact(self.session, on);
                // An older version does not count at all.
                let turned =
                    neighbour.top(&query).is_ok_and(|items| !Answer::of(items).totals.was_exact);
                was_off |= turned;
            }
            now.insert(*number, Exact { was_off, is_current: true });
        }
        self.exact = on.then_some(now);
    }

    /// Records that an address space has another connection.
    fn reopened(&mut self, number: u16) {
        if let Some(exact) = self.exact.as_mut().and_then(|all| all.get_mut(&number)) {
            exact.is_current = false;
        }
    }

    /// Keeps exact accounting and its connections alive.
    fn renew(&mut self) {
        for (number, neighbour) in &mut self.known {
            if self.exact.as_ref().is_some_and(|told| told.contains_key(number)) {
                // What fails here fails in the next query, which reports it.
                let _ = neighbour.top(&exact(self.session, true));
            }
        }
    }
}

/// Turns exact accounting on or off. The interval of the rates goes on.
fn exact(session: u64, on: bool) -> TopQuery {
    TopQuery { session, exact: Some(on), again: true, ..TopQuery::default() }
}

/// What is queried about an address space besides a list.
struct Itself {
    /// The ID that it must have.
    id: Option<Id>,
}

/// Queries an address space. One of an older version sends its whole list, as does one without
/// microprocesses.
fn ask(neighbour: &mut Neighbour, query: &TopQuery) -> Result<Answer, Error> {
    match neighbour.top(query) {
        Ok(items) => Ok(Answer::of(items)),
        Err(Error::Refused(Refused::Unsupported(_) | Refused::Invalid(_))) => {
            Ok(Answer::from_list(query, neighbour.microprocesses()?))
        }
        Err(error) => Err(error),
    }
}

/// Queries one address space; `None` if it has ended. The flag is true if the connection can be
/// used again.
fn sight(
    neighbour: &mut Neighbour,
    list: Option<&List>,
    session: u64,
    itself: Option<Itself>,
) -> (Option<Sight>, bool) {
    let mut sight = Sight { number: neighbour.number(), itself: None, listed: None };
    let mut is_other = false;
    let mut query_all = || -> Result<(), Error> {
        if let Some(Itself { id }) = itself {
            let space = neighbour.space()?;
            is_other = id.is_some_and(|id| id != space.id);
            sight.itself = Some(Ok((space, neighbour.metrics()?)));
        }
        if let Some(list) = list {
            let rows = if list.usage {
                Rows::Usage(neighbour.resources(None)?)
            } else {
                // A query of all begins the next interval of the rates.
                let again = sight.itself.is_none();
                Rows::Top(ask(neighbour, &list.query(session, again))?)
            };
            sight.listed = Some(Listed { list: list.clone(), rows });
        }
        Ok(())
    };
    match query_all() {
        // Another address space has the number by now.
        Ok(()) if is_other => (None, false),
        Ok(()) => (Some(sight), true),
        Err(Error::Gone(_)) => (None, false),
        Err(error) => {
            let usable = matches!(error, Error::Refused(_));
            sight.itself = Some(Err(error.to_string()));
            (Some(sight), usable)
        }
    }
}
