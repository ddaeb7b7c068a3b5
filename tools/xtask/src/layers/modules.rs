//! The modules of a crate, and what each defines, imports and mentions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A library, a program or an example of a package.
#[derive(Clone, Debug)]
pub struct Target {
    /// The package's folder, with the target's name behind it unless this is the main target.
    pub name: String,
    /// The package's name.
    pub package: String,
    /// The source file of the root module, from the workspace's root.
    pub root: PathBuf,
}

/// Where a path stands in the sources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: String,
    pub line: usize,
}

/// A `use` of one name, or of all names of a module.
#[derive(Debug)]
pub struct Import {
    /// The name that it binds; none for a glob.
    pub name: Option<String>,
    /// The segments of its path.
    pub path: Vec<String>,
    /// Whether other modules see the name.
    pub exported: bool,
    /// Whether it stands in a function.
    pub in_block: bool,
    pub place: Place,
}

/// A path in code.
#[derive(Debug)]
pub struct Mention {
    pub path: Vec<String>,
    pub place: Place,
}

/// A module, inline or in a file.
#[derive(Debug, Default)]
pub struct Module {
    /// The names from the crate's root down; empty for the root itself.
    pub path: Vec<String>,
    /// The root is its own parent.
    pub parent: usize,
    /// The module itself if it is a file, or the innermost file around it.
    pub file: usize,
    pub children: BTreeMap<String, usize>,
    /// Names of the items that it defines.
    pub items: BTreeSet<String>,
    pub imports: Vec<Import>,
    pub mentions: Vec<Mention>,
}

/// The modules of a target; the first is its root.
#[derive(Debug)]
pub struct Crate {
    pub target: Target,
    pub modules: Vec<Module>,
    /// Macros with `#[macro_export]`, which are named as items of the root, and their modules.
    pub exported_macros: BTreeMap<String, usize>,
}

impl Crate {
    /// A crate with an empty root.
    pub fn new(target: &Target) -> Crate {
        Crate {
            target: target.clone(),
            modules: vec![Module::default()],
            exported_macros: BTreeMap::new(),
        }
    }
}
