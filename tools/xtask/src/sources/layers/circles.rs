//! Describes circles of modules: their modules, short cycles through them, and imports to cut.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Write;

use super::graph::Graph;

type Step = (usize, usize);

/// Describes all circles of some crates.
pub fn describe(graphs: &[&Graph]) -> String {
    let mut text = String::new();
    for graph in graphs {
        for circle in graph.circles() {
            text += &describe_one(graph, &circle);
        }
    }
    text
}

/// Describes a circle: its modules, cycles that cover all of them, and the imports to cut.
pub fn describe_one(graph: &Graph, circle: &BTreeSet<usize>) -> String {
    let names: Vec<_> = circle.iter().map(|module| &*graph.modules[*module]).collect();
    let mut text =
        format!("{}: circle of {} modules: {}\n", graph.name, circle.len(), names.join(", "));
    let mut covered = BTreeSet::new();
    for module in circle {
        if covered.contains(module) {
            continue;
        }
        let way = shortest(graph, circle, *module);
        covered.extend(way.iter().map(|(from, _)| *from));
        let _ = writeln!(text, " a way around of {} steps:", way.len());
        for (from, to) in way {
            let _ = writeln!(text, "{}", graph.step(from, to));
        }
    }
    text += " imports whose removal breaks every way around:\n";
    for (from, to) in cuts(graph, circle) {
        let _ = writeln!(text, "{}", graph.step(from, to));
    }
    text
}

/// The shortest cycle through a module of a circle.
fn shortest(graph: &Graph, circle: &BTreeSet<usize>, start: usize) -> Vec<Step> {
    let mut before = BTreeMap::new();
    let mut open = VecDeque::from([start]);
    while let Some(module) = open.pop_front() {
        for target in graph.targets(module).filter(|target| circle.contains(target)) {
            if before.contains_key(&target) {
                continue;
            }
            before.insert(target, module);
            open.push_back(target);
        }
    }
    let mut way = Vec::new();
    let mut at = start;
    while let Some(from) = before.get(&at) {
        way.push((*from, at));
        at = *from;
        if at == start {
            break;
        }
    }
    way.reverse();
    way
}

/// A small set of imports whose removal breaks all cycles, the weakest first (P. Eades, X. Lin, W.
/// F. Smyth, "A fast and effective heuristic for the feedback arc set problem", 1993).
pub fn cuts(graph: &Graph, circle: &BTreeSet<usize>) -> Vec<Step> {
    let is_inside = |(from, to): &&Step| {
        circle.contains(from) && circle.contains(to) && !graph.are_kin(*from, *to)
    };
    let steps: Vec<Step> = graph.edges.keys().filter(is_inside).copied().collect();
    let weight = |step: &Step| graph.edges[step].count;
    let mut left: BTreeSet<usize> = circle.clone();
    let (mut high, mut low) = (Vec::new(), Vec::new());
    while !left.is_empty() {
        let sum = |end: fn(&Step) -> usize, module: usize| -> usize {
            let rest = steps.iter().filter(|(from, to)| left.contains(from) && left.contains(to));
            rest.filter(|step| end(step) == module).map(weight).sum()
        };
        let out = |module: usize| sum(|step| step.0, module);
        let into = |module: usize| sum(|step| step.1, module);
        let excess = |module: &usize| out(*module).cast_signed() - into(*module).cast_signed();
        let sink = left.iter().copied().find(|module| out(*module) == 0);
        let source = || left.iter().copied().find(|module| into(*module) == 0);
        let next = if let Some(sink) = sink {
            low.push(sink);
            sink
        } else if let Some(next) = source().or_else(|| left.iter().copied().max_by_key(excess)) {
            high.push(next);
            next
        } else {
            break;
        };
        left.remove(&next);
    }
    high.extend(low.into_iter().rev());
    let rank: BTreeMap<usize, usize> =
        high.iter().enumerate().map(|(rank, module)| (*module, rank)).collect();
    let runs_up = |step: &Step| rank[&step.0] > rank[&step.1];
    let (mut up, mut kept): (Vec<Step>, Vec<Step>) = steps.iter().partition(|step| runs_up(step));
    up.sort_by_key(weight);
    // The heaviest first: an import that closes no cycle with the remaining ones is kept.
    let mut cuts: Vec<Step> = Vec::new();
    for step in up.into_iter().rev() {
        if reaches(&kept, step.1, step.0) { cuts.push(step) } else { kept.push(step) }
    }
    cuts.reverse();
    cuts
}

/// Returns whether the steps contain a path from `start` to `end`.
fn reaches(steps: &[Step], start: usize, end: usize) -> bool {
    let (mut seen, mut open) = (BTreeSet::from([start]), vec![start]);
    while let Some(module) = open.pop() {
        for (_, to) in steps.iter().filter(|(from, _)| *from == module) {
            if seen.insert(*to) {
                open.push(*to);
            }
        }
    }
    seen.contains(&end)
}
