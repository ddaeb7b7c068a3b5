//! More nodes and open files than the limit of descriptors.

use kumihimo_host::{Access, Settings};
use kumihimo_store::{Errno, New, Node, Store};
use kumihimo_tests::{process, skip};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::tree::{RDONLY, RDWR, Tree, caller};

/// Lowers both limits of open files. Affects the whole process.
fn limit(to: u64) {
    setrlimit(Resource::Nofile, Rlimit { current: Some(to), maximum: Some(to) })
        .expect("less is always allowed");
}

/// Number of open descriptors of the process.
fn open() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("procfs").count()
}

#[test]
fn ten_thousand_files_can_be_open() {
    const NAME: &str = "descriptors::ten_thousand_files_can_be_open";
    if getrlimit(Resource::Nofile).maximum.is_some_and(|most| most < 10_500) {
        return skip(NAME, "the hard limit of open files is too low");
    }
    process::alone(NAME, || {
        // Less than two descriptors for each file.
        limit(10_500);
        for access in [Access::Plain, Access::Kumihimo] {
            let tree = Tree::with(Settings { access, ..Settings::default() });
            let files: Vec<_> = (0..10_000u32)
                .map(|n| {
                    let node = tree.make(tree.root(), &format!("f{n}"), New::File { mode: 0o600 });
                    let handle =
                        tree.host.open(node, RDWR).unwrap_or_else(|e| panic!("file {n}: {e}"));
                    assert_eq!(tree.host.write(node, handle, 0, &n.to_ne_bytes()), Ok(4));
                    (node, handle)
                })
                .collect();
            for (n, (node, handle)) in (0u32..).zip(&files) {
                let mut read = [0; 4];
                assert_eq!(tree.host.read(*node, *handle, 0, &mut read), Ok(4));
                assert_eq!(u32::from_ne_bytes(read), n);
                assert_eq!(tree.host.attributes(*node).map(|now| now.size), Ok(4), "file {n}");
            }
            for (node, handle) in files {
                tree.host.release(node, handle);
                tree.host.forget(node, 1);
            }
            let left = open();
            assert!(left < 100, "{left}");
        }
    });
}

/// A client refers to all nodes of a tree, as a kernel with a large cache of inodes does.
#[test]
fn nodes_may_outnumber_descriptors() {
    const NAME: &str = "descriptors::nodes_may_outnumber_descriptors";
    process::alone(NAME, || {
        limit(200);
        let tree = Tree::new();
        let directories: Vec<(Node, Vec<Node>)> = (0..20)
            .map(|d| {
                let directory =
                    tree.make(tree.root(), &format!("d{d}"), New::Directory { mode: 0o755 });
                let make =
                    |f: u32| tree.make(directory, &format!("f{f}"), New::File { mode: 0o600 + f });
                (directory, (0..50).map(make).collect())
            })
            .collect();
        let check = |skipped: Option<Node>| {
            for (directory, files) in &directories {
                for (f, file) in (0..).zip(files).filter(|(_, file)| Some(**file) != skipped) {
                    assert_eq!(tree.host.attributes(*file).expect("stat").permissions, 0o600 + f);
                }
                assert_eq!(
                    tree.list(*directory).len(),
                    52 - usize::from(skipped.is_some_and(|it| files.contains(&it)))
                );
            }
            assert!(open() < 180, "{}", open());
        };
        check(None);
        // Files below a directory that is renamed through the store remain accessible.
        tree.host.rename(tree.root(), b"d3", directories[4].0, b"moved", false).expect("rename");
        tree.host.rename(directories[4].0, b"moved", tree.root(), b"back", false).expect("rename");
        check(None);
        // A removed file that is not open keeps its descriptor.
        let (directory, files) = &directories[7];
        tree.host.unlink(*directory, b"f9").expect("unlink");
        check(Some(files[9]));
        let gone = tree.host.attributes(files[9]).expect("it lives until it is forgotten");
        assert_eq!((gone.links, gone.permissions), (0, 0o611));
        // A file whose name was changed on the host is not confused with another one.
        std::fs::rename(tree.inside("d8/f1"), tree.inside("d8/g1")).expect("rename");
        std::fs::write(tree.inside("d8/f1"), "another").expect("a file");
        let moved = tree.host.attributes(directories[8].1[1]);
        assert!(
            matches!(moved, Err(Errno::STALE)) || moved.is_ok_and(|it| it.size == 0),
            "{moved:?}"
        );
        // A new lookup makes the file accessible again.
        let found = tree.host.lookup(directories[8].0, b"g1").expect("it is there").attributes;
        assert_eq!((found.node, found.permissions), (directories[8].1[1], 0o601));
        assert_eq!(tree.host.attributes(found.node), Ok(found));
    });
}

/// Each removed name takes a descriptor, until none is left. The next operation fails, and nothing
/// has changed.
#[test]
fn exhausted_descriptors_are_an_error_without_damage() {
    const NAME: &str = "descriptors::exhausted_descriptors_are_an_error_without_damage";
    process::alone(NAME, || {
        limit(120);
        let tree = Tree::new();
        let mut opened = Vec::new();
        let refused = loop {
            let name = format!("f{}", opened.len());
            let node = match tree.host.make(
                &caller(),
                tree.root(),
                name.as_bytes(),
                New::File { mode: 0o600 },
            ) {
                Ok(entry) => entry.attributes.node,
                Err(e) => break e,
            };
            match tree.host.open(node, RDWR) {
                Ok(handle) => opened.push((node, handle)),
                Err(e) => break e,
            }
            assert!(opened.len() < 120);
        };
        assert_eq!(refused, Errno::MFILE);
        assert!(opened.len() > 80, "{}", opened.len());
        let mut rest = Vec::new();
        while let Ok(file) = std::fs::File::open("/dev/null") {
            rest.push(file);
        }
        for kind in [
            New::File { mode: 0o600 },
            New::Directory { mode: 0o700 },
            New::Symlink { target: b"x" },
        ] {
            assert_eq!(
                tree.host.make(&caller(), tree.root(), b"more", kind).map(|_| ()),
                Err(Errno::MFILE)
            );
        }
        for (node, handle) in &opened {
            assert_eq!(tree.host.write(*node, *handle, 0, b"x"), Ok(1));
        }
        drop(rest);
        for (node, handle) in opened {
            tree.host.release(node, handle);
            assert_eq!(tree.host.attributes(node).map(|now| now.size), Ok(1));
        }
        assert!(!tree.inside("more").exists());
        tree.make(tree.root(), "more", New::File { mode: 0o600 });
    });
}

#[test]
fn forgetting_a_node_closes_its_descriptor() {
    const NAME: &str = "descriptors::forgetting_a_node_closes_its_descriptor";
    process::alone(NAME, || {
        let tree = Tree::new();
        let before = open();
        let nodes: Vec<_> = (0..100)
            .map(|n| tree.make(tree.root(), &n.to_string(), New::File { mode: 0o600 }))
            .collect();
        assert_eq!(open(), before + 100);
        nodes.into_iter().for_each(|node| tree.host.forget(node, 1));
        assert_eq!(open(), before);
        drop(tree);
        assert!(open() < before);
    });
}

/// Dropping a very deep tree must not recurse.
#[test]
fn deep_tree_is_dropped_without_recursion() {
    let tree = Tree::new();
    let depth = 5_000;
    let nodes = (0..depth).fold(vec![tree.root()], |mut nodes, _| {
        nodes.push(tree.make(nodes[nodes.len() - 1], "d", New::Directory { mode: 0o755 }));
        nodes
    });
    // Forgotten from the top: the lower nodes still refer to the upper ones.
    nodes[1..depth].iter().for_each(|node| tree.host.forget(*node, 1));
    let last = nodes[depth];
    assert!(tree.host.attributes(last).is_ok());
    let handle = tree.host.open(last, RDONLY).expect("opendir");
    tree.host.release(last, handle);
    std::thread::scope(|scope| {
        let small = std::thread::Builder::new().stack_size(64 << 10);
        small
            .spawn_scoped(scope, || tree.host.forget(last, 1))
            .expect("a thread")
            .join()
            .expect("no overflow");
    });
    let removed =
        std::process::Command::new("rm").arg("-rf").arg(tree.inside("d")).status().expect("rm(1)");
    assert!(removed.success());
}
