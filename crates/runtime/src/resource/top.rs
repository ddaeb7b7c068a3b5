//! Answers of the control socket to `kumi top`: totals, sorting, filters and groups over all
//! microprocesses, and the rows that are shown.
//!
//! One pass over the records reads counters and state. Texts are made only for a filter, for a
//! group, for a search, and for the rows of the answer.

mod groups;
mod seen;
mod session;

use std::cmp::Reverse;
use std::sync::atomic::Ordering;

use kumihimo_machine::handler::State;
use kumihimo_machine::top::{
    MOST_PARTS, MOST_ROWS, TopFind, TopGroup, TopGrouping, TopItem, TopQuery, TopRow, TopSort,
    TopTotals, TopVp, TopWaits,
};

use crate::observe::holders::{Holders, Waiting};
use crate::observe::names::label;
use crate::observe::{counters, exact};
use crate::resource::threads::Threads;
use crate::scheduler::instance;
use crate::scheduler::vp::measure;
use groups::Group;
use seen::Seen;
use session::Moment;

/// Answers a query.
pub(super) fn answer(query: &TopQuery, each: &mut dyn FnMut(TopItem)) {
    let was_exact = match query.exact {
        Some(exact) => exact::set_by_session(query.session, exact),
        None => measure::is_exact(),
    };
    let read = instance::visit(|instance| {
        instance.map(|i| {
            let vps = i.vps.iter().take(i.open()).map(|vp| TopVp {
                wake_latency: vp.wake_latency.read().into(),
                queue_lengths: vp.queue_lengths.read().into(),
            });
            let moment = Moment { now: i.now(), turns: i.unfinished_turns() };
            (Threads::of(i), moment, vps.collect::<Vec<_>>())
        })
    });
    let Some((threads, moment, vps)) = read else {
        return each(TopItem::Totals(TopTotals::default()));
    };
    let mut totals = TopTotals {
        exact: measure::is_exact() || was_exact,
        was_exact,
        vps,
        ..TopTotals::default()
    };
    let (mut all, interval) = session::pass(query.session, query.again, &threads, &moment);
    totals.living = all.len() as u64;
    totals.interval = interval;
    let filter = query.filter.to_lowercase();
    if !filter.is_empty() {
        let mut buffer = String::new();
        all.retain(|one| one.contains(&filter, &mut buffer));
    }
    for part in query.within.iter().take(MOST_PARTS) {
        groups::retain(&mut all, part);
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
    let end = skip.saturating_add(limit);
    if query.group == TopGrouping::None {
        // A search needs the order of all.
        sort_first(&mut all, query, if query.find.is_some() { usize::MAX } else { end });
        if let Some(find) = &query.find {
            let mut buffer = String::new();
            totals.found = found(&all, find, |one, text| one.contains(text, &mut buffer));
        }
        each(TopItem::Totals(totals));
        let rows = &all[skip.min(all.len())..end.min(all.len())];
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
    let (groups, stacks) = groups::group(&all, query);
    (totals.groups, totals.stacks) = (groups.len() as u64, stacks);
    if let Some(find) = &query.find {
        totals.found = found(&groups, find, |group, text| group.what.to_lowercase().contains(text));
    }
    each(TopItem::Totals(totals));
    for group in groups.into_iter().skip(skip).take(limit) {
        let Group { what, count, cpu_ns, waiting_ns, depth, stack } = group;
        let cpu = cores(cpu_ns);
        each(TopItem::Group(TopGroup { what, count, cpu, waiting_ns, depth, stack }));
    }
}

/// Returns the position of the first item that contains the text of a search.
fn found<T>(all: &[T], find: &TopFind, mut contains: impl FnMut(&T, &str) -> bool) -> Option<u64> {
    let text = find.text.to_lowercase();
    let mut items = all.iter().enumerate().skip(find.from as usize);
    items.find(|(_, one)| contains(one, &text)).map(|(at, _)| at as u64)
}

fn waits(of: &counters::Waits) -> TopWaits {
    TopWaits { kind: of.kind.to_owned(), count: of.count, ns: of.time.as_nanos() as u64 }
}

/// Moves the first `end` of `all` in the order of the query to the front.
fn sort_first(all: &mut [Seen], query: &TopQuery, end: usize) {
    let id = |one: &Seen| one.who.id();
    let priority = |one: &Seen| one.who.mp.effective();
    let vp = |one: &Seen| one.who.mp.home.load(Ordering::Relaxed);
    let stack = |one: &Seen| match one.state {
        State::Running | State::Blocked => None,
        _ => counters::stack_in_use(one.who),
    };
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
            let what = one.waits_for();
            (what.is_none(), what, id(one))
        }),
        TopSort::WaitTime => first(all, end, backwards, |one| (Reverse(one.waiting_ns), id(one))),
        TopSort::Switches => {
            first(all, end, backwards, |one| (Reverse((one.switches_grown, one.switches)), id(one)))
        }
        TopSort::Stack => first(all, end, backwards, |one| (Reverse(stack(one)), id(one))),
    }
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
    let mut places: Vec<usize> = keys.into_iter().map(|(_, from)| from).collect();
    for to in 0..places.len() {
        let mut from = places[to];
        while from < to {
            from = places[from];
        }
        places[to] = from;
        all.swap(to, from);
    }
}
