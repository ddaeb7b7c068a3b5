//! Imports between the files of a crate.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::modules::{Crate, Place};
use super::names::{self, Found};

/// Imports of one module's items by another module.
#[derive(Clone, Debug)]
pub struct Edge {
    /// Number of occurrences in `use`, paths and macro arguments.
    pub count: usize,
    /// Place of the first occurrence.
    pub place: Place,
}

/// The modules of a crate that are files, and the imports between them.
#[derive(Debug)]
pub struct Graph {
    /// Directory of the crate.
    pub name: String,
    pub package: String,
    /// Paths of the modules. The first one is the crate's root.
    pub modules: Vec<String>,
    /// Imports, by the indices of both modules in `modules`.
    pub edges: BTreeMap<(usize, usize), Edge>,
}

/// The name of a crate's root module.
pub const ROOT: &str = "crate";

impl Graph {
    /// Resolves all imports and paths of a crate.
    pub fn new(of: &Crate) -> Graph {
        let files: Vec<usize> =
            (0..of.modules.len()).filter(|id| of.modules[*id].file == *id).collect();
        let label = |id: &usize| match &of.modules[*id].path {
            path if path.is_empty() => ROOT.to_owned(),
            path => path.join("::"),
        };
        let mut graph = Graph {
            name: of.target.name.clone(),
            package: of.target.package.clone(),
            modules: files.iter().map(label).collect(),
            edges: BTreeMap::new(),
        };
        let node = |id: usize| files.binary_search(&of.modules[id].file).unwrap_or(0);
        for (id, module) in of.modules.iter().enumerate() {
            let is_below = |target: usize| {
                let (own, other) = (&of.modules[module.file].path, &of.modules[target].path);
                other.starts_with(own)
            };
            for import in &module.imports {
                let target = match names::resolve(of, id, &import.path, import.name.is_none()) {
                    Found::Item(target) => target,
                    // An import of a module counts at the paths that use it.
                    Found::Module(target) if import.name.is_none() || import.exported => target,
                    Found::Module(_) | Found::Foreign => continue,
                };
                if !(import.exported && is_below(target)) {
                    graph.add(node(id), node(target), &import.place);
                }
            }
            for mention in &module.mentions {
                if let Found::Item(target) = names::resolve(of, id, &mention.path, false) {
                    graph.add(node(id), node(target), &mention.place);
                }
            }
        }
        graph
    }

    fn add(&mut self, from: usize, to: usize, place: &Place) {
        if from != to {
            let new = || Edge { count: 0, place: place.clone() };
            let edge = self.edges.entry((from, to)).or_insert_with(new);
            edge.count += 1;
            edge.place = edge.place.clone().min(place.clone());
        }
    }

    /// Returns whether `name` is the crate's directory, the directory's name or the package's name.
    pub fn is_called(&self, name: &str) -> bool {
        let folder = self.name.split(':').next().unwrap_or_default();
        let ends = |of: &str| of.rsplit('/').next() == Some(name);
        self.name == name || self.package == name || ends(folder) || folder == name
    }

    /// Modules that a module imports from, except its own ancestors and descendants: a module and
    /// its submodules are one concept in several files.
    pub fn targets(&self, module: usize) -> impl Iterator<Item = usize> {
        self.edges
            .range((module, 0)..=(module, usize::MAX))
            .map(|((_, to), _)| *to)
            .filter(move |to| !self.are_kin(module, *to))
    }

    /// Returns whether one module is inside the other.
    pub fn are_kin(&self, one: usize, other: usize) -> bool {
        let (one, other) = (&self.modules[one], &self.modules[other]);
        let contains = |outer: &str, inner: &str| {
            outer == ROOT || inner.strip_prefix(outer).is_some_and(|rest| rest.starts_with("::"))
        };
        contains(one, other) || contains(other, one)
    }

    /// Sets of at least two modules that import from each other, directly or indirectly.
    pub fn circles(&self) -> Vec<BTreeSet<usize>> {
        let mut search = Search::new(self);
        (0..self.modules.len()).for_each(|module| {
            search.visit(module);
        });
        search.found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        search.found
    }

    /// Description of an edge.
    pub fn step(&self, from: usize, to: usize) -> String {
        let Some(Edge { count, place }) = self.edges.get(&(from, to)) else { return String::new() };
        let (from, to) = (&self.modules[from], &self.modules[to]);
        format!("  {from} -> {to}  {count}  {}:{}", place.file, place.line)
    }
}

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {} modules, {} edges", self.name, self.modules.len(), self.edges.len())?;
        self.edges.keys().try_for_each(|(from, to)| writeln!(f, "{}", self.step(*from, *to)))
    }
}

/// Tarjan's search for strongly connected components.
struct Search<'a> {
    graph: &'a Graph,
    next: usize,
    /// The number of each visited module, and the lowest number that it reaches.
    marks: BTreeMap<usize, (usize, usize)>,
    open: Vec<usize>,
    found: Vec<BTreeSet<usize>>,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph) -> Search<'a> {
        Search { graph, next: 0, marks: BTreeMap::new(), open: Vec::new(), found: Vec::new() }
    }

    /// The lowest number that a module reaches through open modules.
    fn visit(&mut self, module: usize) -> usize {
        if let Some((_, low)) = self.marks.get(&module) {
            return *low;
        }
        let number = self.next;
        self.next += 1;
        let mut low = number;
        self.marks.insert(module, (number, low));
        self.open.push(module);
        for target in self.graph.targets(module) {
            let is_new = !self.marks.contains_key(&target);
            if is_new {
                low = low.min(self.visit(target));
            } else if self.open.contains(&target) {
                low = low.min(self.marks[&target].0);
            }
        }
        self.marks.insert(module, (number, low));
        if low == number {
            let start = self.open.iter().position(|open| *open == module).unwrap_or(0);
            let circle: BTreeSet<_> = self.open.drain(start..).collect();
            if circle.len() > 1 {
                self.found.push(circle);
            }
        }
        low
    }
}
