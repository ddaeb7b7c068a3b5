//! Groups of microprocesses, and the members of a group.

use std::collections::{BTreeMap, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

use kumihimo_backtrace::{Symbols, Walker};
use kumihimo_machine::handler::State;
use kumihimo_machine::top::{TopGroupSort, TopGrouping, TopPart, TopQuery};

use crate::observe::dump;
use crate::observe::names::{label, prefix};
use crate::resource::top::seen::Seen;

/// Number of stacks that are examined for groups by stack, which takes some microseconds each.
const MOST_STACKS: usize = 20_000;
/// Separates the parts of a name in the tree.
const SEPARATOR: char = '/';

/// A group before its CPU time is divided by the interval.
#[derive(Default)]
pub(super) struct Group {
    pub(super) what: String,
    pub(super) count: u64,
    pub(super) cpu_ns: u64,
    pub(super) waiting_ns: u64,
    pub(super) depth: u16,
    pub(super) stack: Option<u64>,
}

impl Group {
    fn add(&mut self, one: &Seen) {
        self.count += 1;
        self.cpu_ns += one.cpu_grown;
        self.waiting_ns += one.waiting_ns.unwrap_or(0);
    }

    /// Returns the number by which groups are sorted, the highest first. It is the same for all
    /// where only the text counts.
    fn rank(&self, sort: TopGroupSort) -> u64 {
        match sort {
            TopGroupSort::Count => self.count,
            TopGroupSort::Cpu => self.cpu_ns,
            TopGroupSort::WaitTime => self.waiting_ns,
            TopGroupSort::What => 0,
        }
    }

    fn add_all(&mut self, other: &Group) {
        self.count += other.count;
        self.cpu_ns += other.cpu_ns;
        self.waiting_ns += other.waiting_ns;
    }
}

/// Returns the groups in their order, and the number of stacks that were examined. Blocks the
/// kernel thread for groups by stack.
pub(super) fn group(all: &[Seen], query: &TopQuery) -> (Vec<Group>, u64) {
    let mut stacks = 0;
    let (sort, backwards) = (query.group_sort, query.backwards);
    let mut groups = match query.group {
        TopGrouping::Stack => by_stack(all, &mut stacks),
        TopGrouping::Name => by_text(all, |one| prefix(&label(one.who.mp)).to_owned()),
        TopGrouping::Tree => {
            let leaves = by_text(all, |one| prefix(&label(one.who.mp)).to_owned());
            return (tree(leaves, sort, backwards), 0);
        }
        TopGrouping::WaitsFor | TopGrouping::None => by_text(all, Seen::wait_or_state),
    };
    groups.sort_by(|a, b| (b.rank(sort), &a.what).cmp(&(a.rank(sort), &b.what)));
    if backwards {
        groups.reverse();
    }
    (groups, stacks)
}

fn by_text(all: &[Seen], text: impl Fn(&Seen) -> String) -> Vec<Group> {
    let mut groups: HashMap<String, Group> = HashMap::new();
    for one in all {
        groups.entry(text(one)).or_default().add(one);
    }
    groups.into_iter().map(|(what, group)| Group { what, ..group }).collect()
}

/// Returns the ancestors of a name in the tree, the root first, and the name itself.
fn lineage(name: &str) -> impl Iterator<Item = &str> {
    let ends = name.match_indices(SEPARATOR).map(|(at, _)| at).filter(|at| *at > 0);
    ends.map(|at| &name[..at]).chain([name])
}

/// Adds the ancestors of the groups, with the totals of the groups below them. A group precedes
/// those below it, and siblings are in the order of `sort`.
fn tree(leaves: Vec<Group>, sort: TopGroupSort, backwards: bool) -> Vec<Group> {
    let mut nodes: BTreeMap<String, Group> = BTreeMap::new();
    for leaf in &leaves {
        for (depth, name) in lineage(&leaf.what).enumerate() {
            let node = nodes.entry(name.to_owned()).or_default();
            node.depth = depth as u16;
            node.add_all(leaf);
        }
    }
    // The sort key of a node has an element for each group of its lineage. A group that is above
    // another one in the lineage precedes it in either direction.
    let key = |name: &str| -> Vec<(u64, String)> {
        lineage(name).map(|name| (nodes[name].rank(sort), name.to_owned())).collect()
    };
    let by_siblings = |a: &[(u64, String)], b: &[(u64, String)]| {
        let differ = a.iter().zip(b).find(|(a, b)| a != b);
        differ.map_or(a.len().cmp(&b.len()), |((a, x), (b, y))| {
            let order = (b, x).cmp(&(a, y));
            if backwards { order.reverse() } else { order }
        })
    };
    let mut keys: Vec<_> = nodes.keys().map(|name| (key(name), name.clone())).collect();
    keys.sort_by(|(a, _), (b, _)| by_siblings(a, b));
    let take = |(_, what): (_, String)| nodes.remove(&what).map(|group| Group { what, ..group });
    keys.into_iter().filter_map(take).collect()
}

/// Stacks of microprocesses that are on no kernel thread, as text without the frames of the
/// runtime. Those frames may differ where the program's calls are the same, so the text is what is
/// compared.
struct Stacks {
    walker: Walker,
    symbols: Symbols,
    /// Identity and text by the hash of all frames.
    known: HashMap<u64, (u64, String)>,
    examined: u64,
}

/// Returns a hash that is the same in every query.
fn hash(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Stacks {
    fn new() -> Stacks {
        let walker = Walker::of_all_loaded();
        let symbols = Symbols::new(walker.modules.clone());
        Stacks { walker, symbols, known: HashMap::new(), examined: 0 }
    }

    /// Returns the identity of the stack and its text, unless the microprocess runs, or too many
    /// stacks were examined.
    fn of(&mut self, one: &Seen) -> Option<&(u64, String)> {
        let is_saved = !matches!(one.state, State::Running | State::Blocked);
        if !is_saved || self.examined >= MOST_STACKS as u64 {
            return None;
        }
        let trace = dump::still(one.who, &mut self.walker)?;
        self.examined += 1;
        let frames = hash((&trace.frames, trace.begins_with, trace.cut));
        Some(self.known.entry(frames).or_insert_with(|| {
            let text = dump::render(&trace, &mut self.symbols);
            (hash(&text), text)
        }))
    }
}

/// Groups those that are on no kernel thread by their stacks.
fn by_stack(all: &[Seen], examined: &mut u64) -> Vec<Group> {
    let mut stacks = Stacks::new();
    let mut groups: HashMap<u64, Group> = HashMap::new();
    for one in all {
        let Some((identity, text)) = stacks.of(one) else { continue };
        let group = groups.entry(*identity).or_insert_with(|| Group {
            what: text.clone(),
            stack: Some(*identity),
            ..Group::default()
        });
        group.add(one);
    }
    *examined = stacks.examined;
    groups.into_values().collect()
}

/// Keeps the members of a group. Blocks the kernel thread for one by stack.
pub(super) fn retain(all: &mut Vec<Seen>, part: &TopPart) {
    match part {
        TopPart::WaitsFor(what) => all.retain(|one| one.wait_or_state() == *what),
        TopPart::Name(what) => all.retain(|one| prefix(&label(one.who.mp)) == what),
        TopPart::Tree(what) => {
            all.retain(|one| lineage(prefix(&label(one.who.mp))).any(|name| name == what));
        }
        TopPart::Stack(identity) => {
            let mut stacks = Stacks::new();
            all.retain(|one| stacks.of(one).is_some_and(|(of, _)| of == identity));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaf(what: &str, count: u64) -> Group {
        Group { what: what.to_owned(), count, cpu_ns: count, ..Group::default() }
    }

    fn printed(groups: &[Group]) -> Vec<String> {
        let line = |one: &Group| format!("{} {} {}", one.depth, one.what, one.count);
        groups.iter().map(line).collect()
    }

    #[test]
    fn tree_has_the_totals_of_what_is_below() {
        let leaves = || {
            vec![leaf("http/conn", 5), leaf("db", 7), leaf("http", 1), leaf("http/tls/in", 9)]
                .into_iter()
                .chain([leaf("", 2)])
                .collect()
        };
        assert_eq!(
            printed(&tree(leaves(), TopGroupSort::Count, false)),
            ["0 http 15", "1 http/tls 9", "2 http/tls/in 9", "1 http/conn 5", "0 db 7", "0  2"]
        );
        assert_eq!(
            printed(&tree(leaves(), TopGroupSort::Count, true)),
            ["0  2", "0 db 7", "0 http 15", "1 http/conn 5", "1 http/tls 9", "2 http/tls/in 9"]
        );
        assert_eq!(tree(leaves(), TopGroupSort::Count, false)[0].cpu_ns, 15);
    }

    #[test]
    fn siblings_of_the_tree_are_in_the_order_of_the_column() {
        let waits = |what: &str, count, waiting_ns| Group { waiting_ns, ..leaf(what, count) };
        let leaves = || vec![waits("a/x", 1, 9), waits("a/y", 5, 2), waits("b", 7, 30)];
        let order = |sort, backwards| -> Vec<String> {
            tree(leaves(), sort, backwards).into_iter().map(|one| one.what).collect()
        };
        assert_eq!(order(TopGroupSort::Count, false), ["b", "a", "a/y", "a/x"]);
        assert_eq!(order(TopGroupSort::WaitTime, false), ["b", "a", "a/x", "a/y"]);
        assert_eq!(order(TopGroupSort::WaitTime, true), ["a", "a/y", "a/x", "b"]);
        assert_eq!(order(TopGroupSort::What, false), ["a", "a/x", "a/y", "b"]);
        assert_eq!(order(TopGroupSort::What, true), ["b", "a", "a/y", "a/x"]);
    }

    #[test]
    fn lineage_begins_at_the_root() {
        for (name, want) in [
            ("a/b/c", &["a", "a/b", "a/b/c"][..]),
            ("a", &["a"]),
            ("", &[""]),
            ("/a", &["/a"]),
            ("a//b", &["a", "a/", "a//b"]),
        ] {
            assert_eq!(lineage(name).collect::<Vec<_>>(), want, "{name}");
        }
    }
}
