//! Reads the modules of each crate from its sources.

mod conditions;
mod visitor;

use std::path::{Path, PathBuf};

use syn::ext::IdentExt;
use syn::{Attribute, Expr, ItemMod, Lit, Meta};

use super::modules::{Crate, Module, Target};
use crate::{Failure, workspace};
use visitor::Visitor;

/// All targets of the workspace's members, except tests, benchmarks and build scripts.
pub fn targets() -> Result<Vec<Target>, Failure> {
    let mut ask = workspace::cargo();
    let output = ask.args(["metadata", "--no-deps", "--format-version", "1"]).output()?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        return Err(format!("layers: cargo metadata: {why}").into());
    }
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let root = workspace::root();
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let relative = |file: &str| {
        Path::new(file).strip_prefix(&root).map_or_else(|_| file.into(), Path::to_path_buf)
    };
    let mut targets = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let manifest = relative(&text(&package["manifest_path"]));
        let folder = manifest.parent().unwrap_or(Path::new("")).to_string_lossy().into_owned();
        for target in package["targets"].as_array().into_iter().flatten() {
            let kinds: Vec<_> = target["kind"].as_array().into_iter().flatten().map(text).collect();
            if kinds.iter().any(|kind| ["test", "bench", "custom-build"].contains(&&**kind)) {
                continue;
            }
            let source = relative(&text(&target["src_path"]));
            let is_main = source.ends_with("src/lib.rs")
                || source.ends_with("src/main.rs")
                    && !root.join(&folder).join("src/lib.rs").exists();
            let of = text(&target["name"]);
            let name = if is_main { folder.clone() } else { format!("{folder}:{of}") };
            targets.push(Target { name, package: text(&package["name"]), root: source });
        }
    }
    targets.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(targets)
}

/// Parses the root module of `target` and all modules that it declares.
pub fn read(target: &Target, read: &dyn Fn(&Path) -> Option<String>) -> Result<Crate, Failure> {
    let folder = target.root.parent().unwrap_or(Path::new("")).to_path_buf();
    let mut reader = Reader { of: Crate::new(target), read };
    reader.parse(0, &target.root, &folder)?;
    Ok(reader.of)
}

/// A crate whose modules are being read.
struct Reader<'a> {
    of: Crate,
    /// Returns the text of a file, if the file exists.
    read: &'a dyn Fn(&Path) -> Option<String>,
}

impl Reader<'_> {
    /// Parses the file of a module. The files of its children are in `folder`.
    fn parse(&mut self, module: usize, file: &Path, folder: &Path) -> Result<(), Failure> {
        let text =
            (self.read)(file).ok_or_else(|| format!("layers: {}: no such file", file.display()))?;
        let parsed = syn::parse_file(&text)
            .map_err(|e| format!("layers: {}:{}: {e}", file.display(), e.span().start().line))?;
        if conditions::leaves_out(&parsed.attrs) {
            return Ok(());
        }
        self.items(module, file, folder, &parsed.items)
    }

    fn items(
        &mut self,
        module: usize,
        file: &Path,
        folder: &Path,
        items: &[syn::Item],
    ) -> Result<(), Failure> {
        for item in items {
            match item {
                syn::Item::Mod(child) => self.child(module, file, folder, child)?,
                item => Visitor::new(&mut self.of, module, file).item(item),
            }
        }
        Ok(())
    }

    /// Adds a declared or inline module.
    fn child(
        &mut self,
        parent: usize,
        file: &Path,
        folder: &Path,
        child: &ItemMod,
    ) -> Result<(), Failure> {
        let name = child.ident.unraw().to_string();
        if name == "tests" || conditions::leaves_out(&child.attrs) {
            return Ok(());
        }
        // Variants of a module under different conditions are treated as one module.
        let module = self.of.modules[parent].children.get(&name).copied().unwrap_or_else(|| {
            let id = self.of.modules.len();
            let path = self.of.modules[parent].path.iter().cloned().chain([name.clone()]).collect();
            let is_file = child.content.is_none();
            let of = if is_file { id } else { self.of.modules[parent].file };
            self.of.modules.push(Module { path, parent, file: of, ..Module::default() });
            self.of.modules[parent].children.insert(name.clone(), id);
            id
        });
        let below = folder.join(&name);
        if let Some((_, items)) = &child.content {
            return self.items(module, file, &below, items);
        }
        if let Some(path) = path_attribute(&child.attrs) {
            let file = normal(&file.parent().unwrap_or(Path::new("")).join(path));
            let folder = file.parent().unwrap_or(Path::new("")).to_path_buf();
            return self.parse(module, &file, &folder);
        }
        let (plain, nested) = (folder.join(format!("{name}.rs")), below.join("mod.rs"));
        let file = if (self.read)(&plain).is_some() { plain } else { nested };
        self.parse(module, &file, &below)
    }
}

/// The value of `#[path = "..."]`.
fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    attributes.iter().find_map(|attribute| {
        let Meta::NameValue(pair) = &attribute.meta else { return None };
        let Expr::Lit(literal) = &pair.value else { return None };
        let Lit::Str(path) = &literal.lit else { return None };
        pair.path.is_ident("path").then(|| path.value())
    })
}

/// Normalises a path: removes `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        if part == std::path::Component::ParentDir {
            normal.pop();
        } else {
            normal.push(part);
        }
    }
    normal
}
