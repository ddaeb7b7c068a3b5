//! Answers of the control socket to `kumi top`: totals, sorting, filters and groups over all
//! microprocesses, and the rows that are shown.
//!
//! One pass over the records reads counters and state. Texts are made only for a filter, for a
//! group, and for the rows of the answer. A session keeps the counters of its last query by the
//! position of the record, because records are never removed.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Instant;

use kumihimo_backtrace::{Symbols, Trace, Walker};
use kumihimo_machine::handler::State;
use kumihimo_machine::top::{
    MOST_ROWS, TopGroup, TopGrouping, TopItem, TopQuery, TopRow, TopSort, TopTotals, TopVp,
    TopWaits,
};
use kumihimo_resource::id::Printed;

use crate::kernel_thread::no_events::lock;
use crate::memory::pool;
use crate::microprocess::protocol::state::Phase;
use crate::microprocess::record::{Mp, Ref};
use crate::microprocess::wait_reason::Wait;
use crate::observe::holders::{Holders, Waiting};
use crate::observe::{counters, dump};
use crate::resource::threads::Threads;
use crate::scheduler::instance;
use crate::scheduler::vp::measure;

/// Number of sessions whose last query is kept.
const SESSIONS: usize = 4;
/// Number of stacks that are examined for groups by stack, which takes some microseconds each.
const MOST_STACKS: usize = 20_000;

/// The counters at the last query of a session.
struct Session {
    number: u64,
    at: Instant,
    /// ID, switches and CPU time by the position of the record.
    seen: Vec<(u64, u64, u64)>,
}

/// The sessions, the most recent one last.
static KEPT: Mutex<Vec<Session>> = Mutex::new(Vec::new());

/// A microprocess in the pass over all records.
struct Seen {
    who: Ref,
    state: State,
    cpu_ns: u64,
    switches: u64,
    /// Growth since the last query of the session.
    cpu_grown: u64,
    switches_grown: u64,
    waiting_ns: Option<u64>,
}

/// Answers a query.
pub(super) fn answer(query: &TopQuery, each: &mut dyn FnMut(TopItem)) {
    let was_exact = match query.exact {
        Some(exact) => measure::set_exact(exact),
        None => measure::is_exact(),
    };
    let read = instance::visit(|instance| {
        instance.map(|i| {
            let vps = i.vps.iter().take(i.open()).map(|vp| TopVp {
                wake_latency: vp.wake_latency.read().into(),
                queue_lengths: vp.queue_lengths.read().into(),
            });
            (Threads::of(i), i.now(), vps.collect::<Vec<_>>())
        })
    });
    let Some((threads, now, vps)) = read else {
        return each(TopItem::Totals(TopTotals::default()));
    };
    let mut totals = TopTotals {
        exact: measure::is_exact() || was_exact,
        was_exact,
        vps,
        ..TopTotals::default()
    };
    let (mut all, interval) = pass(query.session, &threads, now);
    totals.living = all.len() as u64;
    totals.interval = interval;
    let filter = query.filter.to_lowercase();
    if !filter.is_empty() {
        let mut text = String::new();
        all.retain(|one| {
            text.clear();
            describe(one, &mut text);
            text.to_lowercase().contains(&filter)
        });
    }
    totals.matching = all.len() as u64;
    for one in &all {
        totals.states[one.state as usize] += 1;
    }
    let rate = |n: u64| interval.map(|seconds| n as f64 / seconds);
    let cores = |ns: u64| rate(ns).map(|rate| rate / 1e9);
    totals.cpu = cores(all.iter().map(|one| one.cpu_grown).sum());
    totals.switch_rate = rate(all.iter().map(|one| one.switches_grown).sum());
    let (skip, limit) = (query.skip as usize, query.limit.min(MOST_ROWS) as usize);
    if query.group == TopGrouping::None {
        each(TopItem::Totals(totals));
        let rows = select(&mut all, query, skip, limit);
        let parked: Vec<Waiting> = rows.iter().filter_map(|one| Waiting::of(one.who.mp)).collect();
        let holders = Holders::of(&parked);
        for one in rows {
            let Some(microprocess) = threads.see(one.who.mp, &holders) else { continue };
            let on = matches!(one.state, State::Running | State::Blocked);
            let read = counters::of(one.who.mp, on);
            if !one.who.is_current() {
                continue;
            }
            each(TopItem::Row(Box::new(TopRow {
                microprocess,
                cpu: cores(one.cpu_grown),
                cpu_ns: one.cpu_ns,
                switch_rate: rate(one.switches_grown),
                switches: one.switches,
                preemptions: read.preemptions,
                waiting_ns: one.waiting_ns,
                waits: read.waits.iter().map(waits).collect(),
                wake_latency_ns: (read.timed_wakes != 0)
                    .then(|| read.wake_latency.as_nanos() as u64 / u64::from(read.timed_wakes)),
                stack_bytes: read.stack_in_use.map(|bytes| bytes as u64),
            })));
        }
        return;
    }
    let mut groups = match query.group {
        TopGrouping::Stack => by_stack(&all, &mut totals),
        TopGrouping::Name => by_text(&all, |one| prefix(&label(one.who.mp)).to_owned()),
        _ => by_text(&all, |one| waits_for(one).unwrap_or_else(|| one.state.to_string())),
    };
    totals.groups = groups.len() as u64;
    groups.sort_by(|a, b| (b.count, &a.what).cmp(&(a.count, &b.what)));
    if query.backwards {
        groups.reverse();
    }
    each(TopItem::Totals(totals));
    for Group { what, count, cpu_ns, waiting_ns } in groups.into_iter().skip(skip).take(limit) {
        each(TopItem::Group(TopGroup { what, count, cpu: cores(cpu_ns), waiting_ns }));
    }
}

fn waits(of: &counters::Waits) -> TopWaits {
    TopWaits { kind: of.kind.to_owned(), count: of.count, ns: of.time.as_nanos() as u64 }
}

/// Reads every living microprocess. Returns them with the seconds since the last query of the
/// session, if there was one.
fn pass(session: u64, threads: &Threads, now: u64) -> (Vec<Seen>, Option<f64>) {
    let mut kept = lock(&KEPT);
    let before = kept.iter().position(|one| one.number == session).map(|at| kept.remove(at));
    let at = Instant::now();
    let interval = before.as_ref().map(|before| at.duration_since(before.at).as_secs_f64());
    let empty = Vec::new();
    let last = before.as_ref().map_or(&empty, |before| &before.seen);
    let (mut all, mut seen) = (Vec::with_capacity(last.len()), Vec::with_capacity(last.len()));
    pool::for_each(|mp| {
        let who = mp.reference();
        let phase = mp.state.phase();
        let state = threads.state(who, phase);
        let (switches, cpu_ns) = (mp.switches(), mp.counters.cpu_ns.load(Ordering::Relaxed));
        let (id, switches_then, cpu_then) = last.get(seen.len()).copied().unwrap_or_default();
        // A microprocess that has begun since has all its counters from the interval.
        let is_same = id == who.id();
        let (switches_then, cpu_then) = if is_same { (switches_then, cpu_then) } else { (0, 0) };
        seen.push((who.id(), switches, cpu_ns));
        if let Some(state) = state.filter(|_| who.is_current()) {
            let waiting_ns = (phase == Phase::Parked)
                .then(|| now.saturating_sub(mp.waits_since.load(Ordering::Relaxed)));
            all.push(Seen {
                who,
                state,
                cpu_ns,
                switches,
                cpu_grown: cpu_ns.saturating_sub(cpu_then),
                switches_grown: switches.saturating_sub(switches_then),
                waiting_ns,
            });
        }
    });
    if kept.len() >= SESSIONS {
        kept.remove(0);
    }
    kept.push(Session { number: session, at, seen });
    (all, interval.filter(|seconds| *seconds > 0.0))
}

/// Moves the rows of the answer to the front of `all` in their order, and returns them.
fn select<'a>(all: &'a mut [Seen], query: &TopQuery, skip: usize, limit: usize) -> &'a [Seen] {
    let id = |one: &Seen| one.who.id();
    let priority = |one: &Seen| one.who.mp.effective();
    let vp = |one: &Seen| one.who.mp.home.load(Ordering::Relaxed);
    let stack = |one: &Seen| match one.state {
        State::Running | State::Blocked => None,
        _ => counters::stack_in_use(one.who),
    };
    let end = skip.saturating_add(limit);
    let backwards = query.backwards;
    match query.sort {
        TopSort::Id => first(all, end, backwards, id),
        TopSort::Cpu => {
            first(all, end, backwards, |one| (Reverse((one.cpu_grown, one.cpu_ns)), id(one)))
        }
        TopSort::Name => first(all, end, backwards, |one| {
            let name = label(one.who.mp);
            (name.is_empty(), name, id(one))
        }),
        TopSort::State => first(all, end, backwards, |one| (one.state, id(one))),
        TopSort::Priority => first(all, end, backwards, |one| (Reverse(priority(one)), id(one))),
        TopSort::Vp => first(all, end, backwards, |one| (vp(one), id(one))),
        TopSort::WaitsFor => first(all, end, backwards, |one| {
            let what = waits_for(one);
            (what.is_none(), what, id(one))
        }),
        TopSort::WaitTime => first(all, end, backwards, |one| (Reverse(one.waiting_ns), id(one))),
        TopSort::Switches => {
            first(all, end, backwards, |one| (Reverse((one.switches_grown, one.switches)), id(one)))
        }
        TopSort::Stack => first(all, end, backwards, |one| (Reverse(stack(one)), id(one))),
    }
    &all[skip.min(all.len())..end.min(all.len())]
}

/// Sorts the first `end` of `all` by `key`, which is computed once for each.
fn first<K: Ord>(all: &mut [Seen], end: usize, backwards: bool, key: impl Fn(&Seen) -> K) {
    let mut keys: Vec<(K, usize)> = all.iter().enumerate().map(|(n, one)| (key(one), n)).collect();
    let order = |a: &(K, usize), b: &(K, usize)| {
        let order = a.cmp(b);
        if backwards { order.reverse() } else { order }
    };
    if end < keys.len() {
        keys.select_nth_unstable_by(end, order);
        keys.truncate(end);
    }
    keys.sort_unstable_by(order);
    // Each place receives its item. A later place that pointed there follows the item that was
    // moved away.
    let places: Vec<usize> = keys.into_iter().map(|(_, from)| from).collect();
    for to in 0..places.len() {
        let mut from = places[to];
        while from < to {
            from = places[from];
        }
        all.swap(to, from);
    }
}

fn label(mp: &Mp) -> String {
    let mut label = [0; 47];
    let n = mp.label(&mut label);
    String::from_utf8_lossy(&label[..n]).into_owned()
}

/// Returns the beginning of a name, without a number at its end and what separates it.
fn prefix(name: &str) -> &str {
    let of = name.trim_end_matches(|c: char| c.is_ascii_digit());
    if of.len() == name.len() { name } else { of.trim_end_matches(['-', '_', '/', ' ', '.', '#']) }
}

fn waits_for(one: &Seen) -> Option<String> {
    one.waiting_ns?;
    one.who.mp.waits_for().as_ref().map(Wait::to_string)
}

/// Appends what a filter can find.
fn describe(one: &Seen, text: &mut String) {
    let _ = write!(text, "{}\n{}\n{}\n", Printed(one.who.id()), label(one.who.mp), one.state);
    if let Some(what) = waits_for(one) {
        text.push_str(&what);
    }
}

/// A group before its CPU time is divided by the interval.
#[derive(Default)]
struct Group {
    what: String,
    count: u64,
    cpu_ns: u64,
    waiting_ns: u64,
}

impl Group {
    fn add(&mut self, one: &Seen) {
        self.count += 1;
        self.cpu_ns += one.cpu_grown;
        self.waiting_ns += one.waiting_ns.unwrap_or(0);
    }
}

fn by_text(all: &[Seen], text: impl Fn(&Seen) -> String) -> Vec<Group> {
    let mut groups: HashMap<String, Group> = HashMap::new();
    for one in all {
        groups.entry(text(one)).or_default().add(one);
    }
    groups.into_iter().map(|(what, group)| Group { what, ..group }).collect()
}

/// Groups those that are on no kernel thread by their stacks. Blocks the kernel thread.
fn by_stack(all: &[Seen], totals: &mut TopTotals) -> Vec<Group> {
    let mut walker = Walker::of_all_loaded();
    let mut symbols = Symbols::new(walker.modules.clone());
    let mut groups: HashMap<(Vec<u64>, Option<u64>), (Trace, Group)> = HashMap::new();
    let is_saved = |one: &&Seen| !matches!(one.state, State::Running | State::Blocked);
    for one in all.iter().filter(is_saved).take(MOST_STACKS) {
        let Some(trace) = dump::still(one.who, &mut walker) else { continue };
        totals.stacks += 1;
        let key = (trace.frames.clone(), trace.begins_with);
        groups.entry(key).or_insert_with(|| (trace, Group::default())).1.add(one);
    }
    let render = |(trace, group): (Trace, Group)| Group {
        what: dump::render(&trace, &mut symbols),
        ..group
    };
    groups.into_values().map(render).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_of_a_name_has_no_number_at_its_end() {
        for (name, want) in [
            ("worker-12", "worker"),
            ("worker", "worker"),
            ("a/b/3", "a/b"),
            ("conn#7", "conn"),
            ("12", ""),
            ("x-", "x-"),
            ("", ""),
        ] {
            assert_eq!(prefix(name), want, "{name}");
        }
    }
}
