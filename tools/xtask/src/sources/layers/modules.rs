//! The modules of a crate with their definitions, imports and mentioned paths.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// A library, a program or an example of a package.
#[derive(Clone, Debug)]
pub struct Target {
    /// Directory of the package, followed by the target's name unless this is the main target.
    pub name: String,
    /// Name of the package.
    pub package: String,
    /// Source file of the root module, relative to the workspace's root.
    pub root: PathBuf,
}

/// Position of a path in the sources.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub file: String,
    pub line: usize,
}

/// A `use` of one name, or of all names of a module.
#[derive(Debug)]
pub struct Import {
    /// The bound name; `None` for a glob.
    pub name: Option<String>,
    /// The segments of its path.
    pub path: Vec<String>,
    /// True if other modules can use the name.
    pub exported: bool,
    /// True if the import is inside a function.
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
    /// Names from the crate's root down; empty for the root itself.
    pub path: Vec<String>,
    /// Index of the parent. The root is its own parent.
    pub parent: usize,
    /// Index of the module itself if it is a file, otherwise of the innermost enclosing file.
    pub file: usize,
    pub children: BTreeMap<String, usize>,
    /// Names of the items that the module defines.
    pub items: BTreeSet<String>,
    pub imports: Vec<Import>,
    pub mentions: Vec<Mention>,
}

/// The modules of a target. The first one is its root.
#[derive(Debug)]
pub struct Crate {
    pub target: Target,
    pub modules: Vec<Module>,
    /// Macros with `#[macro_export]`, which are addressed as items of the root, and their modules.
    pub exported_macros: BTreeMap<String, usize>,
}

impl Crate {
    /// Creates a crate with an empty root.
    pub fn new(target: &Target) -> Crate {
        Crate {
            target: target.clone(),
            modules: vec![Module::default()],
            exported_macros: BTreeMap::new(),
        }
    }
}
