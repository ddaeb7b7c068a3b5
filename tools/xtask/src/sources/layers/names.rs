//! Name resolution: finds the module that defines the target of a path.

use std::collections::BTreeSet;

use super::modules::{Crate, Module};

/// Target of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    Module(usize),
    /// An item, identified by the module that defines it.
    Item(usize),
    /// A name of another crate, a local variable, or a type parameter.
    Foreign,
}

/// Names being resolved, with their modules. A cyclic import has no target.
type Seen = BTreeSet<(usize, String, bool)>;

/// Resolves a path in a module. With `as_module`, a module is preferred to an item of the same
/// name.
pub fn resolve(of: &Crate, module: usize, path: &[String], as_module: bool) -> Found {
    follow(of, module, path, as_module, &mut Seen::new())
}

fn follow(of: &Crate, module: usize, path: &[String], as_module: bool, seen: &mut Seen) -> Found {
    let (mut at, mut inside) = (module, false);
    for (index, name) in path.iter().enumerate() {
        match name.as_str() {
            "crate" => (at, inside) = (0, true),
            "self" => inside = true,
            "super" => (at, inside) = (of.modules[at].parent, true),
            name => match find(of, at, name, as_module || index + 1 < path.len(), seen) {
                Found::Module(child) => (at, inside) = (child, true),
                Found::Item(definer) => return Found::Item(definer),
                // The item is defined by a macro, or re-exports a name of another crate.
                Found::Foreign if inside => return Found::Item(at),
                Found::Foreign => return Found::Foreign,
            },
        }
    }
    Found::Module(at)
}

/// Looks up a name in the scope of a module.
fn find(of: &Crate, module: usize, name: &str, as_module: bool, seen: &mut Seen) -> Found {
    if !seen.insert((module, name.to_owned(), as_module)) {
        return Found::Foreign;
    }
    let scope = &of.modules[module];
    let child = scope.children.get(name).map(|child| Found::Module(*child));
    let item = if scope.items.contains(name) {
        Some(Found::Item(module))
    } else {
        let of_root = || of.exported_macros.get(name).filter(|_| module == 0);
        of_root().map(|definer| Found::Item(*definer))
    };
    let own = if as_module { child.or(item) } else { item };
    if let Some(found) = own {
        return found;
    }
    let mut best = child;
    for path in imports(scope, name, false).chain(imports(scope, name, true)) {
        match follow(of, module, path, as_module, seen) {
            Found::Foreign => {}
            Found::Module(target) if !as_module => best = best.or(Some(Found::Module(target))),
            found => return found,
        }
    }
    for glob in scope.imports.iter().filter(|import| import.name.is_none()) {
        if let Found::Module(target) = follow(of, module, &glob.path, true, seen)
            && target != module
            && is_in(of, target, name)
        {
            match find(of, target, name, as_module, seen) {
                Found::Foreign => {}
                found => return found,
            }
        }
    }
    best.unwrap_or(Found::Foreign)
}

/// Paths of the imports that bind `name`.
fn imports<'a>(
    scope: &'a Module,
    name: &'a str,
    in_block: bool,
) -> impl Iterator<Item = &'a [String]> {
    let binds = move |import: &&super::modules::Import| {
        import.in_block == in_block && import.name.as_deref() == Some(name)
    };
    scope.imports.iter().filter(binds).map(|import| &import.path[..])
}

/// Returns whether a module may contain a name, by definition or by a glob import.
fn is_in(of: &Crate, module: usize, name: &str) -> bool {
    let scope = &of.modules[module];
    scope.children.contains_key(name)
        || scope.items.contains(name)
        || scope
            .imports
            .iter()
            .any(|import| import.name.is_none() || import.name.as_deref() == Some(name))
}
