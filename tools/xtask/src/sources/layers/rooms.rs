//! `layers.txt`: the budget for circles of modules, and the order of rooms in crates.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use super::circles;
use super::graph::{Edge, Graph, ROOT};
use crate::Failure;

/// Path of the file, relative to the workspace's root.
pub const LAYERS: &str = "layers.txt";

/// Contents of `layers.txt`.
#[derive(Debug, PartialEq, Eq)]
pub struct Layers {
    /// Number of circles of modules in all crates.
    circles: usize,
    /// Number of modules in the largest circle; 0 without circles.
    largest: usize,
    /// Rooms of each listed crate from low to high, by the crate's directory.
    rooms: BTreeMap<String, Vec<String>>,
}

impl Layers {
    /// Parses lines of `circles COUNT`, `largest COUNT`, `crate FOLDER` and `room NAME [TEXT]`.
    pub fn parse(text: &str) -> Result<Layers, Failure> {
        let (mut circles, mut largest) = (None, None);
        let mut rooms: BTreeMap<String, Vec<String>> = BTreeMap::new();
        let mut open = None;
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |why: &str| format!("layers: {LAYERS}:{}: {why}", index + 1);
            let words: Vec<_> = line.split_whitespace().collect();
            match words[..] {
                [name @ ("circles" | "largest"), count] => {
                    let count = count.parse().map_err(|_| wrong("expected a count"))?;
                    let of = if name == "circles" { &mut circles } else { &mut largest };
                    if of.replace(count).is_some() {
                        return Err(wrong(&format!("a second line of {name}")).into());
                    }
                }
                ["crate", folder] => {
                    if rooms.insert(folder.to_owned(), Vec::new()).is_some() {
                        return Err(wrong(&format!("a second entry of {folder}")).into());
                    }
                    open = Some(folder);
                }
                ["room", name, ..] => {
                    let of = open.and_then(|folder| rooms.get_mut(folder));
                    let of = of.ok_or_else(|| wrong("a room before any crate"))?;
                    if of.iter().any(|other| other == name) {
                        return Err(wrong(&format!("room {name} is listed twice")).into());
                    }
                    of.push(name.to_owned());
                }
                _ => {
                    let forms = "circles COUNT, largest COUNT, crate FOLDER or room NAME [TEXT]";
                    return Err(wrong(&format!("expected {forms}")).into());
                }
            }
        }
        let missing = |name| move || format!("layers: {LAYERS}: no line of {name}");
        Ok(Layers {
            circles: circles.ok_or_else(missing("circles"))?,
            largest: largest.ok_or_else(missing("largest"))?,
            rooms,
        })
    }

    /// Description of all violations; empty if all rules hold.
    pub fn check(&self, graphs: &[Graph]) -> String {
        let mut text = String::new();
        for (folder, rooms) in &self.rooms {
            match graphs.iter().find(|graph| graph.name == *folder) {
                Some(graph) => check_rooms(graph, rooms, &mut text),
                None => {
                    let _ = writeln!(text, "layers: {LAYERS}: {folder} is not a crate");
                }
            }
        }
        let (circles, largest) = measured(graphs);
        if circles > self.circles || largest > self.largest {
            text += &circles::describe(&graphs.iter().collect::<Vec<_>>());
        }
        for (what, is, may) in [
            ("circles of modules", circles, self.circles),
            ("modules in the largest circle", largest, self.largest),
        ] {
            if is > may {
                let _ = writeln!(text, "layers: {is} {what}, {may} allowed");
            } else if is < may {
                let _ = writeln!(
                    text,
                    "layers: {is} {what}, {may} allowed: run scripts/layers --lower"
                );
            }
        }
        text
    }

    /// Contents of the file with the current values as the budget.
    pub fn lowered(&self, text: &str, graphs: &[Graph]) -> Result<String, Failure> {
        let (circles, largest) = measured(graphs);
        if circles > self.circles || largest > self.largest {
            return Err(format!(
                "layers: {}: more than the budget, which never rises",
                summary(graphs)
            )
            .into());
        }
        let line = |line: &str| match line.split_whitespace().next() {
            Some("circles") => format!("circles {circles}\n"),
            Some("largest") => format!("largest {largest}\n"),
            _ => format!("{line}\n"),
        };
        Ok(text.lines().map(line).collect())
    }
}

/// Number of circles, and number of modules in the largest.
fn measured(graphs: &[Graph]) -> (usize, usize) {
    let sizes = || graphs.iter().flat_map(Graph::circles).map(|circle| circle.len());
    (sizes().count(), sizes().max().unwrap_or(0))
}

/// Description of the current values.
pub fn summary(graphs: &[Graph]) -> String {
    let (circles, largest) = measured(graphs);
    let modules: usize = graphs.iter().map(|graph| graph.modules.len()).sum();
    format!(
        "{circles} circles among {modules} modules of {} crates, the largest of {largest} modules",
        graphs.len()
    )
}

/// The room of a module: its top-level module, or the root.
fn room(module: &str) -> &str {
    module.split("::").next().unwrap_or(module)
}

fn check_rooms(graph: &Graph, rooms: &[String], text: &mut String) {
    let folder = &graph.name;
    let has: BTreeSet<&str> =
        graph.modules.iter().map(|module| room(module)).filter(|room| *room != ROOT).collect();
    for name in rooms.iter().filter(|name| !has.contains(name.as_str())) {
        let _ = writeln!(text, "layers: {LAYERS}: {folder} has no room {name}");
    }
    for name in has.iter().filter(|name| !rooms.iter().any(|room| room == **name)) {
        let _ = writeln!(text, "layers: {LAYERS}: room {name} of {folder} is not listed");
    }
    let rank = |module: usize| {
        let name = room(&graph.modules[module]);
        // The root is above all rooms.
        if name == ROOT { Some(rooms.len()) } else { rooms.iter().position(|room| room == name) }
    };
    for (from, to) in graph.edges.keys() {
        if let (Some(low), Some(high)) = (rank(*from), rank(*to))
            && low < high
        {
            let (low, high) = (room(&graph.modules[*from]), room(&graph.modules[*to]));
            let _ = writeln!(text, "layers: {folder}: room {low} imports from {high} above it:");
            let _ = writeln!(text, "{}", graph.step(*from, *to));
        }
    }
    let between = between_rooms(graph);
    for circle in between.circles() {
        let _ = writeln!(text, "layers: {folder}: the rooms form a circle:");
        *text += &circles::describe_one(&between, &circle);
    }
}

/// Graph of the imports between rooms.
fn between_rooms(graph: &Graph) -> Graph {
    let rooms: BTreeSet<&str> = graph.modules.iter().map(|module| room(module)).collect();
    let modules: Vec<String> = rooms.into_iter().map(str::to_owned).collect();
    let of = |module: &usize| modules.iter().position(|name| name == room(&graph.modules[*module]));
    let mut edges: BTreeMap<(usize, usize), Edge> = BTreeMap::new();
    for ((from, to), edge) in &graph.edges {
        let (Some(from), Some(to)) = (of(from), of(to)) else { continue };
        if from != to {
            let sum = edges.entry((from, to)).or_insert_with(|| Edge { count: 0, ..edge.clone() });
            sum.count += edge.count;
        }
    }
    Graph { name: graph.name.clone(), package: graph.package.clone(), modules, edges }
}
