//! Requests of a page about single microprocesses and address spaces: actions, stacks, searches and
//! profiles. Each blocks the kernel thread until the address space has answered.

use std::time::Duration;

use kumihimo_machine::client::{Machine, Neighbour};
use kumihimo_machine::handler::Action;
use kumihimo_machine::profile::{CPU_RATE, OFF_CPU_RATE, ProfileKind, ProfileQuery};
use kumihimo_machine::top::TopFind;
use kumihimo_resource::id::{Id, Kind};
use serde::{Deserialize, Serialize};

use super::live::look::{ask, is_own};
use super::live::view::View;
use crate::profile::{self, Picture};
use crate::show::top::once::session;
use crate::steer::Told;
use crate::text::short;

/// Longest profile, in seconds.
pub const LONGEST_PROFILE: u32 = 30;
/// Longest text of a search, in bytes.
const LONGEST_SEARCH: usize = 256;

/// A request to steer a microprocess.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Act {
    id: Id,
    action: Action,
}

/// A request for a profile.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    space: u16,
    #[serde(default)]
    kind: ProfileKind,
    seconds: u32,
}

/// The position of a row.
#[derive(Debug, Serialize)]
pub struct Position {
    found: Option<u64>,
}

/// The address space of a microprocess, unless that is this process.
fn neighbour(machine: &Machine, number: u16) -> Result<Neighbour, String> {
    let mut neighbour = machine.neighbour(number).map_err(|e| e.to_string())?;
    let space = neighbour.space().map_err(|e| e.to_string())?;
    if is_own(&space) {
        return Err(format!("address space {number} is kumi web itself: use the command kumi"));
    }
    Ok(neighbour)
}

fn of_microprocess(machine: &Machine, id: Id) -> Result<Neighbour, String> {
    if id.kind() != Kind::MICROPROCESS || id.location().machine() != 0 {
        return Err(format!("{id} is no microprocess of this machine"));
    }
    neighbour(machine, id.location().space())
}

/// Steers a microprocess. Returns what was done as a phrase.
///
/// # Errors
/// A line about the reason.
pub fn act(machine: &Machine, act: &Act) -> Result<String, String> {
    if let Action::Priority(64..) = act.action {
        return Err("a priority is 0 to 63".to_owned());
    }
    let done = of_microprocess(machine, act.id)?.act(act.id, act.action);
    let done = done.map_err(|e| format!("{}: {e}", short(act.id)))?;
    Ok(format!("{}: {}", short(act.id), Told(act.action, done)))
}

/// Returns the stack of a microprocess as lines.
///
/// # Errors
/// A line about the reason.
pub fn backtrace(machine: &Machine, id: &str) -> Result<String, String> {
    let id: Id = id.parse().map_err(|e| format!("{e}"))?;
    let text = of_microprocess(machine, id)?.backtrace(id);
    text.map_err(|e| format!("{}: {e}", short(id)))
}

/// Searches the rows of a view, from a position on, and once more from the first one.
///
/// # Errors
/// A line about the reason.
pub fn find(machine: &Machine, view: &View, text: &str, from: u32) -> Result<Position, String> {
    if text.len() > LONGEST_SEARCH {
        return Err(format!("a text to search has at most {LONGEST_SEARCH} bytes"));
    }
    let (Some(query), Some(number)) = (view.query(session()), view.space()) else {
        return Err("this view has no rows to search".to_owned());
    };
    let mut neighbour = neighbour(machine, number)?;
    for from in [from, 0] {
        let find = Some(TopFind { text: text.to_owned(), from });
        let query = kumihimo_machine::top::TopQuery { find, limit: 0, ..query.clone() };
        let answer = ask(&mut neighbour, &query).map_err(|e| e.to_string())?;
        if answer.totals.found.is_some() || from == 0 {
            return Ok(Position { found: answer.totals.found });
        }
    }
    Ok(Position { found: None })
}

/// Profiles an address space.
///
/// # Errors
/// A line about the reason.
pub fn profile(machine: &Machine, profile: &Profile) -> Result<Picture, String> {
    if !(1..=LONGEST_PROFILE).contains(&profile.seconds) {
        return Err(format!("a profile takes 1 to {LONGEST_PROFILE} seconds"));
    }
    let time = Duration::from_secs(profile.seconds.into());
    let query = ProfileQuery {
        kind: profile.kind,
        rate: match profile.kind {
            ProfileKind::Cpu => CPU_RATE,
            ProfileKind::OffCpu => OFF_CPU_RATE,
            ProfileKind::Stacks => 1,
        },
        milliseconds: match profile.kind {
            ProfileKind::Stacks => None,
            ProfileKind::Cpu | ProfileKind::OffCpu => Some(time.as_millis() as u64),
        },
    };
    profile::picture(neighbour(machine, profile.space)?, &query)
}
