//! Targets named on the command line, and the connections to their address spaces.

pub mod machines;

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Mutex;
use std::thread;

use kumihimo_machine::client::{self, Machine, Neighbour};
use kumihimo_machine::handler::{Microprocess, Refused, Space};
use kumihimo_resource::id::{Id, Kind, SPACES};

use crate::text::{Plain, short};

/// Number of address spaces that are queried in parallel, so that an unresponsive one delays only
/// itself.
const SIDE_BY_SIDE: usize = 16;

/// An address space: `12`, or with its ID, `12.space.0.7`, which excludes later address spaces with
/// the same number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Number of the address space.
    pub number: u16,
    /// ID, if one was given.
    id: Option<Id>,
    /// A number that may be the ID of a process: beyond those of address spaces, it can be nothing
    /// else. Otherwise an address space with that number comes first.
    pid: Option<u32>,
}

/// A single target: a microprocess by ID (`12.42.7`) or by a name that is unique in its address
/// space (`12/worker`); a gate or link by ID (`12.gate.0.1`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum One {
    /// By ID.
    Id(Id),
    /// By address space and name.
    Name(u16, String),
}

/// An address space or a microprocess.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A whole address space.
    Space(Place),
    /// A single target, or all microprocesses with a name.
    One(One),
}

impl Place {
    /// Any address space with this number.
    pub fn of(number: u16) -> Place {
        Place { number, id: None, pid: None }
    }

    /// The process ID that was given, if the place may be one.
    pub fn pid(self) -> Option<u32> {
        self.pid
    }

    /// Whether both are the same as far as known without asking.
    pub fn is_same(self, other: Place) -> bool {
        let same = self.number == other.number && self.id == other.id;
        same && (self.number != 0 || self.pid == other.pid)
    }
}

fn space_number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|n: &u16| (1..SPACES).contains(n) && n.to_string() == text)
}

impl FromStr for Place {
    type Err = String;

    fn from_str(text: &str) -> Result<Place, String> {
        let pid = text.parse().ok().filter(|n: &u32| *n > 0 && n.to_string() == text);
        if let Some(number) = space_number(text) {
            return Ok(Place { number, id: None, pid });
        }
        if pid.is_some() {
            return Ok(Place { number: 0, id: None, pid });
        }
        match text.parse::<Id>() {
            Ok(id) if id.kind() == Kind::SPACE => {
                Ok(Place { number: here(id)?, id: Some(id), pid: None })
            }
            _ => Err(format!(
                "{text:?} is no address space: expected its number, 1 to {}, its id, for example 12.space.0.7, or its process id (see kumi ps --spaces)",
                SPACES - 1
            )),
        }
    }
}

impl FromStr for One {
    type Err = String;

    fn from_str(text: &str) -> Result<One, String> {
        let refused = match text.parse::<Id>() {
            // Gates and links can be cancelled. Other requests about them are refused by their
            // address space.
            Ok(id) if [Kind::MICROPROCESS, Kind::GATE, Kind::LINK].contains(&id.kind()) => {
                return here(id).map(|_| One::Id(id));
            }
            Ok(id) => {
                return Err(format!(
                    "{id} is of kind {}: expected a microprocess, for example 12.42.7",
                    id.kind()
                ));
            }
            Err(refused) => refused,
        };
        match text.split_once('/').map(|(space, name)| (space_number(space), name)) {
            Some((Some(space), name)) if !name.is_empty() => Ok(One::Name(space, name.to_owned())),
            _ => Err(format!("{refused}; or SPACE/NAME, for example 12/worker")),
        }
    }
}

impl FromStr for Target {
    type Err = String;

    fn from_str(text: &str) -> Result<Target, String> {
        if let Ok(place) = text.parse() {
            return Ok(Target::Space(place));
        }
        match text.parse() {
            Ok(one) => Ok(Target::One(one)),
            Err(refused) if text.contains(['.', '/']) => Err(refused),
            Err(_) => Err(text.parse::<Place>().expect_err("as above")),
        }
    }
}

impl fmt::Display for One {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            One::Id(id) => write!(f, "{}", short(*id)),
            One::Name(space, name) => write!(f, "{space}/{}", Plain(name)),
        }
    }
}

/// Number of the ID's address space, if the ID belongs to this machine.
fn here(id: Id) -> Result<u16, String> {
    match id.location().machine() {
        0 => Ok(id.location().space()),
        other => Err(format!(
            "{id} is on machine {other}: only address spaces of this machine are accessible"
        )),
    }
}

/// Reason why a request failed.
#[derive(Debug)]
pub enum Trouble {
    /// The connection failed, or the address space refused the request.
    Asked(client::Error),
    /// The target does not exist or is ambiguous.
    Named(String),
}

impl Trouble {
    /// Returns whether the resource or its address space has ended.
    pub fn is_end(&self) -> bool {
        matches!(
            self,
            Trouble::Asked(client::Error::Refused(Refused::Stale(_)) | client::Error::Gone(..))
        )
    }

    /// The address space's refusal, if the error is one.
    pub fn refused(&self) -> Option<&Refused> {
        match self {
            Trouble::Asked(client::Error::Refused(refused)) => Some(refused),
            _ => None,
        }
    }
}

impl From<client::Error> for Trouble {
    fn from(error: client::Error) -> Trouble {
        Trouble::Asked(error)
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::Asked(error) => write!(f, "{}", Plain(&error.to_string())),
            Trouble::Named(said) => f.write_str(said),
        }
    }
}

/// Selects the address spaces of a user.
#[derive(clap::Args)]
pub struct Whose {
    /// Use the address spaces in this run-time directory, which may belong to another user: for
    /// root, and for users that its address spaces admit
    #[arg(long = "in", value_name = "DIR")]
    directory: Option<PathBuf>,
}

impl Whose {
    /// The machine that these options select.
    pub fn machine(&self) -> Result<Machine, String> {
        let machine = match &self.directory {
            Some(directory) => Machine::at(directory),
            None => Machine::mine(),
        };
        let machine = machine.map_err(|e| e.to_string())?;
        for why in machine.passed_over() {
            eprintln!("kumi: {}; {} is used instead", Plain(why), machine.path().display());
        }
        Ok(machine)
    }
}

/// The address spaces contacted so far, with one connection each.
pub struct Reach {
    machine: Machine,
    known: BTreeMap<u16, Neighbour>,
}

impl Reach {
    /// Starts without connections.
    pub fn to(machine: Machine) -> Reach {
        Reach { machine, known: BTreeMap::new() }
    }

    /// The connection to address space `number`.
    pub fn space(&mut self, number: u16) -> Result<&mut Neighbour, Trouble> {
        Ok(match self.known.entry(number) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(self.machine.neighbour(number)?),
        })
    }

    /// Resolves a target to its ID and its address space.
    pub fn find(&mut self, one: &One) -> Result<(Id, &mut Neighbour), Trouble> {
        match one {
            One::Id(id) => Ok((*id, self.space(id.location().space())?)),
            One::Name(number, name) => {
                let space = self.space(*number)?;
                let all = space.microprocesses()?;
                let named: Vec<Id> = of_name(&all, name).map(|m| m.id).collect();
                match named[..] {
                    [id] => Ok((id, space)),
                    [] => Err(nobody(*number, name)),
                    [..] => {
                        let some: Vec<String> =
                            named.iter().take(3).map(|id| short(*id).to_string()).collect();
                        let more = if named.len() > some.len() { ", ..." } else { "" };
                        Err(Trouble::Named(format!(
                            "{one} is {} microprocesses: give the id of one ({}{more})",
                            named.len(),
                            some.join(", ")
                        )))
                    }
                }
            }
        }
    }
}

/// Microprocesses with this name.
pub fn of_name<'a>(all: &'a [Microprocess], name: &str) -> impl Iterator<Item = &'a Microprocess> {
    all.iter().filter(move |m| m.name.as_deref() == Some(name))
}

/// The error for a name that no microprocess has.
pub fn nobody(number: u16, name: &str) -> Trouble {
    Trouble::Named(format!(
        "no microprocess of address space {number} is named {:?}: see kumi ps {number}",
        name
    ))
}

/// The address space at a place. Fails if the number now belongs to another address space.
pub fn space_at(neighbour: &mut Neighbour, place: Place) -> Result<Space, Trouble> {
    let space = neighbour.space()?;
    match place.id {
        Some(id) if id != space.id => Err(Trouble::Named(format!(
            "{id} has ended: address space {} is now {}",
            place.number, space.id
        ))),
        _ => Ok(space),
    }
}

/// The address spaces at the given places, or all of the user's. Unreachable ones are reported on
/// standard error; the flag is then false.
pub fn neighbours(
    machine: &Machine,
    places: &[Place],
) -> Result<(Vec<(Place, Neighbour)>, bool), String> {
    if places.is_empty() {
        let all = machine.spaces().map_err(|e| e.to_string())?;
        return Ok((all.into_iter().map(|n| (Place::of(n.number()), n)).collect(), true));
    }
    let mut found: Vec<(Place, Neighbour)> = Vec::new();
    let mut whole = true;
    for place in places {
        match neighbour(machine, *place) {
            // Given twice, once by its process.
            Ok((at, other))
                if at != *place && found.iter().any(|(_, one)| one.number() == other.number()) => {}
            Ok(there) => found.push(there),
            Err(why) => {
                complain(&why);
                whole = false;
            }
        }
    }
    Ok((found, whole))
}

/// The address space at a place, which is known there by its number.
pub fn neighbour(machine: &Machine, place: Place) -> Result<(Place, Neighbour), String> {
    match (machine.neighbour(place.number), place.pid) {
        (Ok(neighbour), _) if place.number != 0 => Ok((place, neighbour)),
        (Err(error), None) => Err(error.to_string()),
        (Ok(_), None) => Err("no address space has number 0".to_owned()),
        (_, Some(pid)) => of_process(machine, pid),
    }
}

/// The address space of process `pid`.
fn of_process(machine: &Machine, pid: u32) -> Result<(Place, Neighbour), String> {
    let all = machine.spaces().map_err(|e| e.to_string())?;
    let asked = each(all, |neighbour| neighbour.space().is_ok_and(|space| space.pid == pid));
    let found = asked.into_iter().find_map(|(neighbour, is_it)| is_it.then_some(neighbour));
    let found = found.map(|neighbour| (Place::of(neighbour.number()), neighbour));
    found.ok_or_else(|| {
        let place = space_number(&pid.to_string()).map_or_else(String::new, |number| {
            format!("there is no address space {number} in {}, and ", machine.path().display())
        });
        format!("{place}no address space there has process id {pid}: see kumi ps --spaces")
    })
}

/// Calls `ask` for all items in parallel. The results have the order of the items.
pub fn each<I: Send, T: Send>(mut items: Vec<I>, ask: impl Fn(&mut I) -> T + Sync) -> Vec<(I, T)> {
    if items.len() < 2 {
        return items
            .drain(..)
            .map(|mut item| {
                let answer = ask(&mut item);
                (item, answer)
            })
            .collect();
    }
    let workers = items.len().min(SIDE_BY_SIDE);
    let waiting = Mutex::new(items.into_iter().enumerate());
    let answered = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..workers {
            scope.spawn(|| {
                loop {
                    let next = waiting.lock().expect("no panic while locked").next();
                    let Some((place, mut item)) = next else { break };
                    let answer = ask(&mut item);
                    answered.lock().expect("no panic while locked").push((place, item, answer));
                }
            });
        }
    });
    let mut answered = answered.into_inner().expect("no panic while locked");
    answered.sort_by_key(|(place, ..)| *place);
    answered.into_iter().map(|(_, item, answer)| (item, answer)).collect()
}

/// Returns the answers of those that [`each`] has asked, and whether all have answered. Complains
/// about each of the others.
pub fn answers<I, T>(asked: Vec<(I, Result<T, Trouble>)>) -> (Vec<T>, bool) {
    let number = asked.len();
    let answer = |(_, answer): (I, Result<T, Trouble>)| answer.inspect_err(complain).ok();
    let all: Vec<T> = asked.into_iter().filter_map(answer).collect();
    let is_whole = all.len() == number;
    (all, is_whole)
}

/// Says on standard error that no address space is there to be shown.
pub fn complain_of_none() {
    eprintln!(
        "kumi: no address space of yours runs: one joins when a program starts its first microprocess"
    );
}

/// Prints one line to standard error.
pub fn complain(what: &impl fmt::Display) {
    eprintln!("kumi: {}", Plain(&what.to_string()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_ids_are_parsed() {
        let id: Id = "12.42.7".parse().unwrap();
        let twelve = Place { pid: Some(12), ..Place::of(12) };
        assert_eq!("12".parse(), Ok(Target::Space(twelve)));
        let process = Place { pid: Some(4_711), ..Place::of(0) };
        assert_eq!("4711".parse(), Ok(Target::Space(process)));
        let space: Id = "12.space.0.7".parse().unwrap();
        assert_eq!(
            "12.space.0.7".parse(),
            Ok(Target::Space(Place { id: Some(space), ..Place::of(12) }))
        );
        assert_eq!("12.42.7".parse(), Ok(Target::One(One::Id(id))));
        assert_eq!("12.microprocess.42.7".parse(), Ok(Target::One(One::Id(id))));
        assert_eq!("12/a/b".parse(), Ok(Target::One(One::Name(12, "a/b".to_owned()))));
        assert_eq!("12/12.42.7".parse(), Ok(Target::One(One::Name(12, "12.42.7".to_owned()))));
    }

    #[test]
    fn invalid_name_reports_the_expected_form() {
        for (text, why) in [
            ("", "no address space"),
            ("0", "no address space"),
            ("012", "no address space"),
            ("-1", "no address space"),
            ("worker", "no address space"),
            ("12/", "SPACE/NAME"),
            ("0/worker", "SPACE/NAME"),
            ("4096/worker", "SPACE/NAME"),
            ("12.42", "number of its parts"),
            ("12.42.x", "its generation"),
            ("12.fiber.42.7", "its kind"),
            ("12.vp.42.7", "of kind vp"),
            ("1/12.42.7", "on machine 1"),
        ] {
            let said = text.parse::<Target>().expect_err(text);
            assert!(said.contains(why), "{text}: {said}");
        }
    }

    #[test]
    fn answers_keep_the_order_of_requests() {
        for n in [0, 1, 2, 100] {
            let doubled: Vec<u32> =
                each((0..n).collect(), |i| *i * 2).into_iter().map(|(_, twice)| twice).collect();
            assert_eq!(doubled, (0..n).map(|i| i * 2).collect::<Vec<u32>>());
        }
    }
}
