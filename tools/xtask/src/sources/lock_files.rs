//! Whether the lock files of the other workspaces, those of the rivals and of the fuzzers, fit the
//! manifests of our crates. These workspaces are seldom built, and the rivals only with `--locked`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use serde::Deserialize;

use crate::workspace::{cargo, root};

#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

/// A crate of the main workspace, as cargo-metadata(1) prints it.
#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    dependencies: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    optional: bool,
}

/// A crate in a lock file that has no source, so that it is one of ours.
struct Locked {
    name: String,
    version: String,
    dependencies: BTreeSet<String>,
}

fn parse(lock: &str) -> Vec<Locked> {
    let blocks = lock.split("[[package]]").skip(1).filter(|block| !block.contains("\nsource = "));
    blocks
        .map(|block| {
            let value = |key: &str| {
                let line = block.lines().find_map(|line| line.strip_prefix(key));
                line.unwrap_or_default().trim_matches([' ', '=', '"']).to_owned()
            };
            let listed = block.split_once("dependencies = [").map_or("", |(_, rest)| rest);
            let names = listed.lines().take_while(|line| *line != "]").filter_map(|line| {
                // A version follows the name where the lock file has several.
                line.trim().trim_matches(['"', ',']).split(' ').next()
            });
            let dependencies = names.filter(|name| !name.is_empty()).map(str::to_owned).collect();
            Locked { name: value("name"), version: value("version"), dependencies }
        })
        .collect()
}

/// Returns what the lock file states otherwise than the manifests. A lock file has the optional
/// dependencies only if they are in use, and those of tests only for its own workspace.
fn differences(lock: &str, ours: &BTreeMap<String, Package>) -> Vec<String> {
    let mut found = Vec::new();
    for locked in parse(lock) {
        let Some(package) = ours.get(&locked.name) else { continue };
        let name = &locked.name;
        if locked.version != package.version {
            found.push(format!("{name} {}, not {}", locked.version, package.version));
        }
        let is_needed = |one: &&Dependency| !one.optional && one.kind.as_deref() != Some("dev");
        let needed = package.dependencies.iter().filter(is_needed).map(|one| &one.name);
        let missing = needed.filter(|needed| !locked.dependencies.contains(*needed));
        found.extend(missing.map(|missing| format!("{name} lacks its dependency {missing}")));
    }
    found
}

#[test]
fn lock_files_beside_the_workspace_fit_its_manifests() {
    let output = cargo()
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1"])
        .output()
        .expect("cargo runs");
    let metadata: Metadata = serde_json::from_slice(&output.stdout).expect("JSON");
    let ours = metadata.packages.into_iter().map(|one| (one.name.clone(), one)).collect();
    let rivals = fs::read_dir(root().join("lab/rivals")).expect("the rivals").flatten();
    let folders = rivals.map(|one| one.path()).chain([root().join("fuzz")]);
    let mut compared = 0;
    for folder in folders {
        let file = folder.join("Cargo.lock");
        let Ok(lock) = fs::read_to_string(&file) else { continue };
        let found = differences(&lock, &ours);
        let (file, folder) = (file.display(), folder.display());
        assert!(found.is_empty(), "{file}: {found:#?}\nrun `cargo metadata` in {folder}");
        compared += parse(&lock).iter().filter(|one| ours.contains_key(&one.name)).count();
    }
    assert!(compared > 20, "{compared} of our crates are in such files");
}

#[test]
fn old_version_and_missing_dependency_are_differences() {
    let dependency = |name: &str, kind: Option<&str>, optional| Dependency {
        name: name.into(),
        kind: kind.map(str::to_owned),
        optional,
    };
    let package = Package {
        name: "kit".into(),
        version: "0.2.0".into(),
        dependencies: vec![
            dependency("libc", None, false),
            dependency("cc", Some("build"), false),
            dependency("loom", Some("dev"), false),
            dependency("serde", None, true),
        ],
    };
    let ours = BTreeMap::from([("kit".to_owned(), package)]);
    let lock = |version: &str, dependencies: &str| {
        format!(
            "version = 4\n\n[[package]]\nname = \"kit\"\nversion = \"{version}\"\ndependencies = [\n{dependencies}]\n\n\
             [[package]]\nname = \"libc\"\nversion = \"0.2.1\"\nsource = \"registry\"\n"
        )
    };
    let all = " \"cc\",\n \"libc 0.2.1\",\n";
    assert_eq!(differences(&lock("0.2.0", all), &ours), Vec::<String>::new());
    assert_eq!(
        differences(&lock("0.1.0", " \"libc\",\n"), &ours),
        ["kit 0.1.0, not 0.2.0", "kit lacks its dependency cc"]
    );
}
