//! Looks at address spaces for views. Blocks the kernel thread.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use kumihimo_machine::client::{Error, Machine, Neighbour};
use kumihimo_machine::handler::{Refused, Space};
use kumihimo_machine::locks::{Chain, Lock, LockTotals, Locks};
use kumihimo_machine::top::{TopGroup, TopQuery, TopRow, TopTotals};
use serde::Serialize;

use super::view::View;
use crate::ask::each;
use crate::show::top::answer::Answer;
use crate::show::top::once::session;
use crate::show::top::rates::Rates;
use crate::text::short;

/// Time limit for one address space.
const PATIENCE: Duration = Duration::from_millis(500);

/// Looks again and again for one view, with connections of its own.
pub struct Looker {
    machine: Machine,
    view: View,
    session: u64,
    start: Instant,
    known: BTreeMap<u16, (Neighbour, Rates)>,
}

/// What a look has found. It is written as one line of JSON.
#[derive(Serialize)]
#[serde(untagged)]
enum Found<'a> {
    Failed { error: String },
    Spaces { spaces: Vec<SpaceRow> },
    Rows { counted: bool, totals: &'a TopTotals, rows: Vec<Row<'a>> },
    Groups { counted: bool, totals: &'a TopTotals, groups: Vec<Group<'a>> },
    Locks { locks: Vec<LockRow<'a>>, chains: Vec<ChainRow>, totals: &'a LockTotals },
}

#[derive(Serialize)]
struct SpaceRow {
    number: u16,
    #[serde(flatten)]
    space: Option<Space>,
    /// Why it does not answer.
    error: Option<String>,
    cpu: Option<f64>,
    switches: Option<f64>,
    spawned: Option<f64>,
    refused: u64,
    misbehaved: u64,
}

#[derive(Serialize)]
struct Row<'a> {
    short: String,
    held: Option<String>,
    #[serde(flatten)]
    row: &'a TopRow,
}

#[derive(Serialize)]
struct Group<'a> {
    what: &'a str,
    count: u64,
    cpu: Option<f64>,
    waiting_ns: u64,
    depth: u16,
    /// As text: a number in a script has 53 bits.
    stack: Option<String>,
}

#[derive(Serialize)]
struct LockRow<'a> {
    held: String,
    #[serde(flatten)]
    lock: &'a Lock,
}

#[derive(Serialize)]
struct ChainRow {
    text: String,
    is_cycle: bool,
    others: u64,
}

/// Whether an address space is this process itself, which the page leaves out: a page that suspends
/// what serves it would end its own service.
pub fn is_own(space: &Space) -> bool {
    let own = kumihimo::machine::number();
    space.pid == std::process::id() && own.is_ok_and(|own| own == space.id.location().space())
}

impl Looker {
    /// Prepares to look.
    pub fn new(machine: &Machine, view: View) -> Looker {
        Looker {
            machine: machine.clone().time_limit(PATIENCE),
            view,
            session: session(),
            start: Instant::now(),
            known: BTreeMap::new(),
        }
    }

    /// Looks. Returns a line of JSON.
    pub fn look(&mut self) -> String {
        let looked = match self.view.clone() {
            View::Spaces => self.spaces(),
            view => self.one(&view),
        };
        looked.unwrap_or_else(|error| json(&Found::Failed { error }))
    }

    fn spaces(&mut self) -> Result<String, String> {
        let mut before = std::mem::take(&mut self.known);
        let living = self.machine.spaces().map_err(|e| e.to_string())?;
        let all: Vec<(Neighbour, Rates)> = living
            .into_iter()
            .map(|fresh| before.remove(&fresh.number()).unwrap_or((fresh, Rates::default())))
            .collect();
        let asked = each(all, |(neighbour, _): &mut (Neighbour, Rates)| {
            let space = neighbour.space()?;
            let metrics = if is_own(&space) { Vec::new() } else { neighbour.metrics()? };
            Ok::<_, Error>((space, metrics))
        });
        let mut spaces = Vec::new();
        for ((neighbour, mut rates), answer) in asked {
            let number = neighbour.number();
            let (space, error) = match answer {
                Ok((space, _)) if is_own(&space) => continue,
                Ok((space, metrics)) => {
                    rates.seen(self.start.elapsed(), space.id, &metrics);
                    (Some(space), None)
                }
                Err(Error::Gone(_)) => continue,
                Err(error) => (None, Some(error.to_string())),
            };
            spaces.push(SpaceRow {
                number,
                space,
                error,
                cpu: rates.cpu,
                switches: rates.switches,
                spawned: rates.spawned,
                refused: rates.refused,
                misbehaved: rates.misbehaved,
            });
            self.known.insert(number, (neighbour, rates));
        }
        Ok(json(&Found::Spaces { spaces }))
    }

    fn one(&mut self, view: &View) -> Result<String, String> {
        let number = view.space().ok_or("the view has no address space")?;
        let mut neighbour = match self.known.remove(&number) {
            Some((neighbour, _)) => neighbour,
            None => self.machine.neighbour(number).map_err(|e| e.to_string())?,
        };
        let found = look(&mut neighbour, view, self.session).map_err(|e| e.to_string());
        // A connection after an error is opened anew by the next request.
        self.known.insert(number, (neighbour, Rates::default()));
        found
    }
}

fn look(neighbour: &mut Neighbour, view: &View, session: u64) -> Result<String, Error> {
    let Some(query) = view.query(session) else {
        let limit = if let View::Locks { limit, .. } = view { *limit } else { 1 };
        return Ok(locks(&neighbour.locks(limit)?));
    };
    let mut answer = ask(neighbour, &query)?;
    // Histograms are some kilobytes, which only their own view needs.
    if !matches!(view, View::Latency { .. }) {
        answer.totals.vps.clear();
    }
    let (counted, totals) = (answer.has_counters, &answer.totals);
    if let View::Groups { .. } = view {
        let groups = answer.groups.iter().map(group).collect();
        return Ok(json(&Found::Groups { counted, totals, groups }));
    }
    Ok(json(&Found::Rows { counted, totals, rows: answer.rows.iter().map(row).collect() }))
}

/// Queries an address space. One of an older version sends its whole list, as does one without
/// microprocesses.
pub fn ask(neighbour: &mut Neighbour, query: &TopQuery) -> Result<Answer, Error> {
    match neighbour.top(query) {
        Ok(items) => Ok(Answer::of(items)),
        Err(Error::Refused(Refused::Unsupported(_) | Refused::Invalid(_))) => {
            Ok(Answer::from_list(query, neighbour.microprocesses()?))
        }
        Err(error) => Err(error),
    }
}

fn row(row: &TopRow) -> Row<'_> {
    let held = row.microprocess.holder.as_ref().map(ToString::to_string);
    Row { short: short(row.microprocess.id).to_string(), held, row }
}

fn group(group: &TopGroup) -> Group<'_> {
    let TopGroup { what, count, cpu, waiting_ns, depth, stack } = group;
    let stack = stack.map(|stack| stack.to_string());
    Group { what, count: *count, cpu: *cpu, waiting_ns: *waiting_ns, depth: *depth, stack }
}

fn locks(of: &Locks) -> String {
    let locks = of.locks.iter().map(|lock| LockRow { held: lock.holder.to_string(), lock });
    let chain = |chain: &Chain| {
        let Chain { is_cycle, others, .. } = *chain;
        ChainRow { text: chain.to_string(), is_cycle, others }
    };
    let chains = of.chains.iter().map(chain).collect();
    json(&Found::Locks { locks: locks.collect(), chains, totals: &of.totals })
}

fn json(found: &Found<'_>) -> String {
    // Maps have texts as keys and numbers are finite or null: nothing here fails to serialise.
    serde_json::to_string(found).unwrap_or_else(|_| r#"{"error":"no JSON"}"#.to_owned())
}
