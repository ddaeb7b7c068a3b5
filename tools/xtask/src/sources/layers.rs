//! `cargo xtask layers`: checks the direction of imports inside each crate (`scripts/layers` calls
//! it).
//!
//! The graph has a node for each source file that is a module, and an edge for each import of an
//! item that another file defines:
//! - Paths in code, in macro arguments and in macro definitions count, not only `use`.
//! - A path through a re-export leads to the module that defines the item.
//! - `mod child;` and a re-export of a descendant's item are no imports.
//! - Code under `cfg(test)` or `cfg(loom)`, and modules named `tests`, are ignored.
//! - Method calls are ignored, because their targets depend on types.
//!
//! Rules:
//! - `layers.txt` lists the rooms (top-level modules) of some crates from low to high. In such a
//!   crate, no import runs from a lower room to a higher one. The crate's root is above all rooms.
//! - The number of circles of modules in all crates, and the size of the largest, must equal the
//!   budget in `layers.txt`. A lower value fails as well, until the budget is lowered: the budget
//!   never rises.
//! - A folder `src` has at most 12 files besides its folders.

mod circles;
mod crowded;
mod graph;
mod modules;
mod names;
mod rooms;
mod sources;
#[cfg(test)]
mod tests;

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::report::Report;
use crate::{Failure, workspace};
use graph::Graph;
use modules::Target;
use rooms::{LAYERS, Layers};

#[derive(clap::Args)]
pub struct Args {
    /// Print the imports between the modules of a crate, given by its directory, the directory's
    /// name or the package's name
    #[arg(long, value_name = "CRATE")]
    graph: Option<String>,
    /// Print the circles of modules and the imports whose removal breaks them, in one crate or in
    /// all
    #[arg(long, value_name = "CRATE", num_args = 0..=1, default_missing_value = "")]
    circles: Option<String>,
    /// Lower the budget to the current values
    #[arg(long)]
    lower: bool,
}

/// Checks all crates against `layers.txt`, or prints a graph or the circles.
pub fn run(args: &Args) -> Result<ExitCode, Failure> {
    let graphs = graphs()?;
    if let Some(name) = &args.graph {
        selected(&graphs, name)?.iter().for_each(|graph| print!("{graph}"));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(name) = &args.circles {
        let of: Vec<_> =
            if name.is_empty() { graphs.iter().collect() } else { selected(&graphs, name)? };
        print!("{}", circles::describe(&of));
        return Ok(ExitCode::SUCCESS);
    }
    let file = workspace::root().join(LAYERS);
    let text = fs::read_to_string(&file).map_err(|e| format!("layers: {LAYERS}: {e}"))?;
    let layers = Layers::parse(&text)?;
    if args.lower {
        fs::write(file, layers.lowered(&text, &graphs)?)?;
        return Ok(ExitCode::SUCCESS);
    }
    let findings =
        layers.check(&graphs) + &crowded::crowded(&workspace::root(), &sources::targets()?)?;
    print!("{findings}");
    println!("{}", rooms::summary(&graphs));
    Ok(ExitCode::from(u8::from(!findings.is_empty())))
}

/// Runs the check as a step of a report.
pub fn check(report: &mut Report) -> Result<(), Failure> {
    let mut layers = workspace::cargo();
    report.run_step("layers", layers.args(["run", "--quiet", "-p", "xtask", "--", "layers"]))
}

/// The graphs of all crates of the workspace.
fn graphs() -> Result<Vec<Graph>, Failure> {
    let read = |file: &Path| fs::read_to_string(workspace::root().join(file)).ok();
    graphs_of(&sources::targets()?, read)
}

/// The graphs of some crates.
fn graphs_of(
    targets: &[Target],
    read: impl Fn(&Path) -> Option<String>,
) -> Result<Vec<Graph>, Failure> {
    if targets.is_empty() {
        return Err("layers: the workspace has no sources".into());
    }
    targets.iter().map(|target| Ok(Graph::new(&sources::read(target, &read)?))).collect()
}

fn selected<'a>(graphs: &'a [Graph], name: &str) -> Result<Vec<&'a Graph>, Failure> {
    let name = name.trim_end_matches('/');
    let of: Vec<_> = graphs.iter().filter(|graph| graph.is_called(name)).collect();
    if of.is_empty() {
        return Err(format!("layers: the workspace has no crate {name}").into());
    }
    Ok(of)
}
