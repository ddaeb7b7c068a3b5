//! Containment: no path leads out of the served directory.

use std::os::unix::fs::symlink;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use kumihimo_store::{Errno, Kind, New, Store};
use kumihimo_tests::{rounds, skip};

use crate::tree::{RDONLY, RDWR, Tree, caller};

#[test]
fn symbolic_links_are_returned_and_never_followed() {
    let tree = Tree::new();
    std::fs::write(tree.path.join("secret"), "outside").expect("a file");
    for (name, target) in
        [("absolute", "/etc/passwd"), ("up", "../secret"), ("root", "/"), ("here", ".")]
    {
        symlink(target, tree.inside(name)).expect("a link");
        let link = tree.find(&[name]).expect(name);
        assert_eq!(link.attributes.kind, Kind::Symlink);
        let node = link.attributes.node;
        assert_eq!(tree.host.read_link(node).expect("its target"), target.as_bytes());
        assert_eq!(tree.host.open(node, RDONLY), Err(Errno::LOOP));
        assert_eq!(tree.host.lookup(node, b"etc").map(|_| ()), Err(Errno::NOTDIR));
        assert_eq!(
            tree.host.make(&caller(), node, b"x", New::File { mode: 0o600 }).map(|_| ()),
            Err(Errno::NOTDIR)
        );
        assert_eq!(tree.host.unlink(node, b"passwd"), Err(Errno::NOTDIR));
        // Creating a name over a link must not create the link's target.
        let made =
            tree.host.make(&caller(), tree.root(), name.as_bytes(), New::File { mode: 0o600 });
        assert_eq!(made.map(|_| ()), Err(Errno::EXIST));
    }
    assert_eq!(std::fs::read(tree.path.join("secret")).expect("it is there"), b"outside");
}

#[test]
fn names_with_several_components_are_refused() {
    let tree = Tree::new();
    std::fs::create_dir(tree.inside("d")).expect("a directory");
    std::fs::write(tree.inside("d/f"), "").expect("a file");
    let names: [&[u8]; 6] = [b"", b"/", b"d/f", b"/etc", b"../inside", b"a\0b"];
    for name in names {
        assert_eq!(tree.host.lookup(tree.root(), name).map(|_| ()), Err(Errno::INVAL), "{name:?}");
        assert_eq!(tree.host.unlink(tree.root(), name), Err(Errno::INVAL), "{name:?}");
        let made = tree.host.make(&caller(), tree.root(), name, New::Directory { mode: 0o700 });
        assert_eq!(made.map(|_| ()), Err(Errno::INVAL), "{name:?}");
        assert_eq!(
            tree.host.rename(tree.root(), name, tree.root(), b"x", false),
            Err(Errno::INVAL),
            "{name:?}"
        );
        assert_eq!(
            tree.host.rename(tree.root(), b"d", tree.root(), name, false),
            Err(Errno::INVAL),
            "{name:?}"
        );
    }
    for name in [&b"."[..], b".."] {
        assert_eq!(tree.host.remove_directory(tree.root(), name), Err(Errno::INVAL));
        assert_eq!(
            tree.host.rename(tree.root(), b"d", tree.root(), name, false),
            Err(Errno::INVAL)
        );
    }
    assert!(tree.inside("d/f").exists());
}

#[test]
fn parent_of_the_root_is_the_root() {
    let tree = Tree::new();
    let root = tree.root();
    assert_eq!(tree.host.lookup(root, b"..").expect("..").attributes.node, root);
    std::fs::create_dir_all(tree.inside("a/b/c")).expect("directories");
    let (a, c) = (tree.find(&["a"]).expect("a"), tree.find(&["a", "b", "c"]).expect("c"));
    let b = tree.host.lookup(c.attributes.node, b"..").expect("..").attributes.node;
    assert_eq!(tree.host.lookup(b, b"..").expect("..").attributes.node, a.attributes.node);
    assert_eq!(tree.host.lookup(a.attributes.node, b"..").expect("..").attributes.node, root);
    let handle = tree.host.open(root, RDONLY).expect("opendir");
    let mut above = None;
    let mut take = |listed: kumihimo_store::Listed<'_>| {
        if listed.name == b".." {
            above = Some(listed.node);
        }
        true
    };
    tree.host.read_directory(root, handle, 0, &mut take).expect("readdir");
    assert_eq!(above, Some(root));
}

/// As with an open directory: its contents remain accessible, its surroundings are not.
#[test]
fn directory_moved_out_of_the_tree_is_unreachable() {
    let tree = Tree::new();
    std::fs::create_dir_all(tree.inside("a/b")).expect("directories");
    std::fs::write(tree.inside("a/b/f"), "mine").expect("a file");
    std::fs::write(tree.path.join("secret"), "outside").expect("a file");
    let (a, b) = (
        tree.find(&["a"]).expect("a").attributes.node,
        tree.find(&["a", "b"]).expect("b").attributes.node,
    );
    std::fs::rename(tree.inside("a"), tree.path.join("a")).expect("it moves");
    assert_eq!(tree.host.lookup(a, b"..").map(|_| ()), Err(Errno::STALE));
    assert_eq!(tree.host.lookup(b, b"..").map(|_| ()), Err(Errno::STALE));
    assert_eq!(tree.find(&["a"]).map(|_| ()), Err(Errno::NOENT));
    let file = tree.host.lookup(b, b"f").expect("it is in it").attributes.node;
    let handle = tree.host.open(file, RDWR).expect("it opens");
    let mut read = [0; 8];
    assert_eq!(tree.host.read(file, handle, 0, &mut read), Ok(4));
    // After the directory is moved back, everything works again.
    std::fs::rename(tree.path.join("a"), tree.inside("a")).expect("it moves");
    assert_eq!(tree.host.lookup(a, b"..").expect("..").attributes.node, tree.root());
}

#[test]
fn mounts_are_not_crossed() {
    let name = "mounts_are_not_crossed";
    let tree = Tree::new();
    let place = tree.inside("m");
    std::fs::create_dir(&place).expect("a directory");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "none"]).arg(&place).output();
    if !mounted.is_ok_and(|mounted| mounted.status.success()) {
        return skip(name, "nothing can be mounted here");
    }
    let (found, known) =
        (tree.find(&["m"]).map(|_| ()), tree.host.remove_directory(tree.root(), b"m"));
    let unmounted = Command::new("umount").arg(&place).status().expect("umount(8)");
    assert!(unmounted.success());
    assert_eq!((found, known), (Err(Errno::XDEV), Err(Errno::BUSY)));
    assert!(tree.find(&["m"]).is_ok());
}

/// Another process alternately makes a name a directory and a link that leads out of the tree,
/// while a client looks up a file below the name.
#[test]
fn swapping_a_directory_for_a_link_does_not_escape_the_tree() {
    let tree = Tree::new();
    std::fs::create_dir(tree.path.join("outside")).expect("a directory");
    std::fs::write(tree.path.join("outside/f"), "secret").expect("a file");
    std::fs::create_dir(tree.inside("real")).expect("a directory");
    std::fs::write(tree.inside("real/f"), "mine").expect("a file");
    symlink(tree.path.join("outside"), tree.inside("link")).expect("a link");
    std::fs::create_dir(tree.inside("d")).expect("a directory");
    std::fs::write(tree.inside("d/f"), "mine").expect("a file");
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (d, real, link) = (tree.inside("d"), tree.inside("real"), tree.inside("link"));
            let rename = |from: &std::path::Path, to: &std::path::Path| {
                let (cwd, exchange) = (rustix::fs::CWD, rustix::fs::RenameFlags::EXCHANGE);
                rustix::fs::renameat_with(cwd, from, cwd, to, exchange)
                    .expect("they change places");
            };
            while !over.load(Relaxed) {
                rename(&d, &link);
                rename(&d, &real);
                rename(&d, &link);
                // Move the directory out of the tree and back.
                std::fs::rename(&real, tree.path.join("away")).expect("out");
                std::fs::rename(tree.path.join("away"), &real).expect("in");
            }
        });
        for round in rounds("swapping_a_directory_for_a_link_does_not_escape_the_tree") {
            for _ in 0..2000 {
                let Ok(d) = tree.find(&["d"]) else { continue };
                let file = tree.host.lookup(d.attributes.node, b"f");
                if let Ok(file) = file {
                    let node = file.attributes.node;
                    let mut read = [0; 16];
                    // The node's descriptor may have been closed and its name changed.
                    match tree.host.open(node, RDONLY) {
                        Ok(handle) => {
                            assert_eq!(
                                tree.host.read(node, handle, 0, &mut read),
                                Ok(4),
                                "round {}",
                                round.number
                            );
                            assert_eq!(&read[..4], b"mine");
                            tree.host.release(node, handle);
                        }
                        Err(e) => assert_eq!(e, Errno::STALE),
                    }
                    tree.host.forget(node, 1);
                } else {
                    let expected = [Err(Errno::NOTDIR), Err(Errno::NOENT), Err(Errno::STALE)];
                    assert!(expected.contains(&file.map(|_| ())), "{file:?}");
                }
                tree.host.forget(d.attributes.node, 1);
            }
        }
        over.store(true, Relaxed);
    });
}
