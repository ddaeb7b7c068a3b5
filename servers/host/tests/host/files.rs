//! Files, directories and links as a client sees them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};

use kumihimo_host::{Access, Settings};
use kumihimo_store::{Changes, Errno, Kind, Listed, New, Seek, Stamp, Store, Time, XattrMode};

use crate::tree::{RDONLY, RDWR, Tree, WRONLY, caller};

const FILE: New<'static> = New::File { mode: 0o644 };

#[test]
fn hard_links_are_one_node() {
    let tree = Tree::new();
    std::fs::write(tree.inside("a"), "text").expect("a file");
    std::fs::hard_link(tree.inside("a"), tree.inside("b")).expect("a second name");
    let (a, b) = (tree.find(&["a"]).expect("a"), tree.find(&["b"]).expect("b"));
    assert_eq!(a, b);
    assert_eq!(a.attributes.links, 2);
    assert_eq!(a.attributes.node.0, std::fs::metadata(tree.inside("a")).expect("stat").ino());
    let c = tree.host.link(a.attributes.node, tree.root(), b"c").expect("a third");
    assert_eq!((c.attributes.node, c.attributes.links), (a.attributes.node, 3));
    // The node has three references: it is valid after two are dropped, and invalid after the
    // third.
    tree.host.forget(a.attributes.node, 2);
    assert!(tree.host.attributes(a.attributes.node).is_ok());
    tree.host.forget(a.attributes.node, 1);
    assert_eq!(tree.host.attributes(a.attributes.node), Err(Errno::STALE));
    tree.host.forget(a.attributes.node, 1);
    tree.host.forget(tree.root(), 100);
    assert!(tree.host.attributes(tree.root()).is_ok());
}

#[test]
fn hard_link_to_a_symbolic_link_is_a_symbolic_link() {
    let tree = Tree::new();
    let link = tree.make(tree.root(), "s", New::Symlink { target: b"/etc/passwd" });
    let second = tree.host.link(link, tree.root(), b"t").expect("a second name");
    assert_eq!((second.attributes.kind, second.attributes.links), (Kind::Symlink, 2));
    assert_eq!(std::fs::read_link(tree.inside("t")).expect("a link").as_os_str(), "/etc/passwd");
}

#[test]
fn unlinked_file_lives_while_open() {
    for access in [Access::Plain, Access::Kumihimo] {
        let tree = Tree::with(Settings { access, ..Settings::default() });
        let node = tree.make(tree.root(), "f", FILE);
        let handle = tree.host.open(node, RDWR).expect("open");
        assert_eq!(tree.host.write(node, handle, 3, b"text"), Ok(4));
        tree.host.unlink(tree.root(), b"f").expect("unlink");
        assert_eq!(tree.find(&["f"]).map(|_| ()), Err(Errno::NOENT));
        let attributes = tree.host.attributes(node).expect("fstat");
        assert_eq!((attributes.links, attributes.size), (0, 7));
        let mut read = [1; 9];
        assert_eq!(tree.host.read(node, handle, 0, &mut read), Ok(7));
        assert_eq!(&read, b"\0\0\0text\x01\x01");
        let changed = tree.host.change(
            node,
            &Changes { size: Some(2), permissions: Some(0o600), ..Changes::default() },
        );
        assert_eq!(changed.map(|now| (now.size, now.permissions)), Ok((2, 0o600)));
        assert_eq!(tree.host.link(node, tree.root(), b"g").map(|_| ()), Err(Errno::NOENT));
        tree.host.sync(node, handle, false).expect("fsync");
        tree.host.sync(node, handle, true).expect("fdatasync");
        tree.host.release(node, handle);
        assert_eq!(tree.host.read(node, handle, 0, &mut read), Err(Errno::BADF));
        tree.host.sync_all().expect("syncfs");
        tree.host.close().expect("close");
    }
}

#[test]
fn names_have_any_255_bytes() {
    let tree = Tree::new();
    let (longest, longer) = ("n".repeat(255), "n".repeat(256));
    tree.make(tree.root(), &longest, FILE);
    assert!(tree.find(&[&longest]).is_ok());
    assert_eq!(tree.find(&[&longer]).map(|_| ()), Err(Errno::NAMETOOLONG));
    let made = tree.host.make(&caller(), tree.root(), longer.as_bytes(), FILE);
    assert_eq!(made.map(|_| ()), Err(Errno::NAMETOOLONG));
    assert_eq!(tree.host.unlink(tree.root(), longer.as_bytes()), Err(Errno::NAMETOOLONG));
    let odd = b"\xff\xfe \n\x01\\";
    tree.host
        .make(&caller(), tree.root(), odd, New::Directory { mode: 0o755 })
        .expect("a name that is not UTF-8");
    assert!(tree.inside(OsStr::from_bytes(odd)).is_dir());
    let mut found = false;
    let handle = tree.host.open(tree.root(), RDONLY).expect("opendir");
    let mut take = |listed: Listed<'_>| {
        found |= listed.name == odd;
        true
    };
    tree.host.read_directory(tree.root(), handle, 0, &mut take).expect("readdir");
    assert!(found);
    tree.host.remove_directory(tree.root(), odd).expect("rmdir");
}

/// Modes do not depend on the server's umask. The tests inherit a umask, which usually is not 0.
#[test]
fn created_files_have_the_exact_mode() {
    let tree = Tree::new();
    for mode in [0o777, 0o666, 0o022, 0, 0o4755, 0o2755, 0o1777, 0o6777] {
        tree.make(tree.root(), "f", New::File { mode });
        tree.make(tree.root(), "d", New::Directory { mode });
        tree.make(tree.root(), "p", New::Special { kind: Kind::Fifo, mode, device: 0 });
        tree.make(tree.root(), "s", New::Special { kind: Kind::Socket, mode, device: 0 });
        for name in ["f", "d", "p", "s"] {
            let metadata = std::fs::symlink_metadata(tree.inside(name)).expect(name);
            assert_eq!(metadata.permissions().mode() & 0o7777, mode, "{name}");
        }
        assert!(std::fs::metadata(tree.inside("p")).expect("stat").file_type().is_fifo());
        for name in ["f", "p", "s"] {
            tree.host.unlink(tree.root(), name.as_bytes()).expect(name);
        }
        tree.host.remove_directory(tree.root(), b"d").expect("rmdir");
    }
}

#[test]
fn set_group_id_directory_passes_on_its_group_and_the_bit() {
    let tree = Tree::new();
    let d = tree.make(tree.root(), "d", New::Directory { mode: 0o2755 });
    let own = tree.host.attributes(d).expect("stat").gid;
    tree.make(d, "sub", New::Directory { mode: 0o755 });
    tree.make(d, "f", New::File { mode: 0o644 });
    let sub = std::fs::metadata(tree.inside("d/sub")).expect("stat");
    assert_eq!((sub.gid(), sub.mode() & 0o7777), (own, 0o2755));
    assert_eq!(std::fs::metadata(tree.inside("d/f")).expect("stat").mode() & 0o7777, 0o644);
}

#[test]
fn attributes_change_together() {
    let tree = Tree::new();
    let node = tree.make(tree.root(), "f", New::File { mode: 0o6755 });
    let (long_ago, later) = (
        Time { seconds: -3, nanoseconds: 5 },
        Time { seconds: 4_000_000_000, nanoseconds: 999_999_999 },
    );
    let changes = Changes {
        size: Some(5000),
        atime: Some(Stamp::At(long_ago)),
        mtime: Some(Stamp::At(later)),
        kill_privileges: true,
        ..Changes::default()
    };
    let now = tree.host.change(node, &changes).expect("it changes");
    assert_eq!((now.size, now.atime, now.mtime, now.permissions), (5000, long_ago, later, 0o755));
    let now = tree
        .host
        .change(node, &Changes { mtime: Some(Stamp::Now), ..Changes::default() })
        .expect("utimens");
    assert_eq!(now.atime, long_ago);
    assert!(now.mtime != later && now.mtime.seconds >= now.ctime.seconds - 1);
    let d = tree.make(tree.root(), "d", New::Directory { mode: 0o755 });
    assert_eq!(
        tree.host.change(d, &Changes { size: Some(0), ..Changes::default() }),
        Err(Errno::ISDIR)
    );
    let s = tree.make(tree.root(), "s", New::Symlink { target: b"f" });
    let set = Changes { permissions: Some(0o600), ..Changes::default() };
    assert_eq!(tree.host.change(s, &set), Err(Errno::OPNOTSUPP));
    // The change applies to the link itself, not to its target.
    let set = Changes { mtime: Some(Stamp::At(later)), ..Changes::default() };
    assert_eq!(tree.host.change(s, &set).map(|now| now.mtime), Ok(later));
    assert_ne!(tree.host.attributes(node).expect("stat").mtime, later);
}

#[test]
fn renames_follow_posix() {
    let tree = Tree::new();
    let (d, e) = (
        tree.make(tree.root(), "d", New::Directory { mode: 0o755 }),
        tree.make(tree.root(), "e", FILE),
    );
    let f = tree.make(d, "f", FILE);
    assert_eq!(tree.host.rename(d, b"f", tree.root(), b"e", true), Err(Errno::EXIST));
    tree.host.rename(d, b"f", tree.root(), b"e", false).expect("rename");
    assert_eq!(tree.find(&["e"]).expect("e").attributes.node, f);
    assert_eq!(tree.host.attributes(e).expect("it is replaced, and lives").links, 0);
    assert_eq!(tree.host.rename(tree.root(), b"d", d, b"below", false), Err(Errno::INVAL));
    assert_eq!(tree.host.rename(tree.root(), b"none", d, b"x", false), Err(Errno::NOENT));
    assert_eq!(tree.host.rename(tree.root(), b"d", tree.root(), b"e", false), Err(Errno::NOTDIR));
    assert_eq!(tree.host.rename(tree.root(), b"e", tree.root(), b"d", false), Err(Errno::ISDIR));
}

#[test]
fn directories_are_listed_in_parts_by_several_at_once() {
    let tree = Tree::new();
    let d = tree.make(tree.root(), "d", New::Directory { mode: 0o755 });
    let mut expected: Vec<String> = (0..3000).map(|n| format!("name-{n}")).collect();
    for name in &expected {
        std::fs::write(tree.inside("d").join(name), "").expect("a file");
    }
    expected.extend([".".into(), "..".into()]);
    expected.sort();
    assert_eq!(tree.list(d), expected);
    let handle = tree.host.open(d, RDONLY).expect("opendir");
    std::thread::scope(|scope| {
        for part in [1, 7, 100] {
            let (tree, expected) = (&tree, &expected);
            scope.spawn(move || {
                let (mut names, mut next) = (Vec::new(), 0);
                loop {
                    let (mut left, before, offset) = (part, names.len(), next);
                    let mut take = |listed: Listed<'_>| {
                        if left == 0 {
                            return false;
                        }
                        left -= 1;
                        next = listed.next;
                        names.push(String::from_utf8(listed.name.to_vec()).expect("UTF-8"));
                        true
                    };
                    tree.host.read_directory(d, handle, offset, &mut take).expect("readdir");
                    if names.len() == before {
                        break;
                    }
                }
                names.sort();
                assert_eq!(&names, expected);
            });
        }
    });
}

#[test]
fn holes_are_found_and_space_is_allocated() {
    let tree = Tree::new();
    let node = tree.make(tree.root(), "f", FILE);
    let handle = tree.host.open(node, RDWR).expect("open");
    assert_eq!(tree.host.write(node, handle, 1 << 20, b"x"), Ok(1));
    assert_eq!(tree.host.seek(node, handle, 0, Seek::Hole), Ok(0));
    assert_eq!(tree.host.seek(node, handle, 0, Seek::Data), Ok(1 << 20));
    assert_eq!(tree.host.seek(node, handle, 1 << 40, Seek::Data), Err(Errno::NXIO));
    tree.host.allocate(node, handle, 1, 0, 4 << 20).expect("FALLOC_FL_KEEP_SIZE");
    let now = tree.host.attributes(node).expect("stat");
    assert!(now.size == (1 << 20) + 1 && now.blocks >= 8192, "{now:?}");
    assert_eq!(tree.host.allocate(node, handle, 0, 0, 0), Err(Errno::INVAL));
    let statistics = tree.host.statistics().expect("statvfs");
    assert!(
        statistics.block_size >= 512
            && statistics.blocks > statistics.free
            && statistics.longest_name == 255
    );
}

#[test]
fn extended_attributes_are_set_listed_and_removed() {
    let tree = Tree::new();
    let node = tree.make(tree.root(), "f", FILE);
    let (host, name) = (&tree.host, b"user.kumihimo");
    match host.set_xattr(node, name, b"value", XattrMode::Replace) {
        Err(Errno::NOTSUP) => {
            return kumihimo_tests::skip(
                "extended_attributes_are_set_listed_and_removed",
                "the file system has none",
            );
        }
        other => assert_eq!(other, Err(Errno::NODATA)),
    }
    host.set_xattr(node, name, b"value", XattrMode::Create).expect("it is new");
    assert_eq!(host.set_xattr(node, name, b"value", XattrMode::Create), Err(Errno::EXIST));
    assert_eq!(host.xattr(node, name).expect("it is there"), b"value");
    assert_eq!(host.xattrs(node).expect("a list"), b"user.kumihimo\0");
    host.set_xattr(node, name, b"", XattrMode::Any).expect("it may be empty");
    assert_eq!(host.xattr(node, name), Ok(Vec::new()));
    host.remove_xattr(node, name).expect("it goes");
    assert_eq!(host.xattr(node, name), Err(Errno::NODATA));
    assert_eq!(host.remove_xattr(node, name), Err(Errno::NODATA));
    // The attributes of the link itself, not of its target.
    let link = tree.make(tree.root(), "s", New::Symlink { target: b"f" });
    assert_eq!(host.set_xattr(link, name, b"value", XattrMode::Any), Err(Errno::PERM));
    assert_eq!(host.xattrs(node), Ok(Vec::new()));
}

#[test]
fn appends_go_to_the_end_unless_the_client_sets_the_offset() {
    const APPEND: u32 = 0o2000;
    for write_back in [false, true] {
        let tree = Tree::with(Settings { write_back, ..Settings::default() });
        let node = tree.make(tree.root(), "f", New::File { mode: 0o600 });
        let handle = tree.host.open(node, WRONLY | APPEND).expect("open");
        std::fs::write(tree.inside("f"), "12345").expect("someone else writes");
        assert_eq!(tree.host.write(node, handle, 0, b"ab"), Ok(2));
        let expected: &[u8] = if write_back { b"ab345" } else { b"12345ab" };
        assert_eq!(std::fs::read(tree.inside("f")).expect("it is there"), expected);
        // The client's cache reads through a write-only handle.
        let read = tree.host.read(node, handle, 0, &mut [0; 2]);
        assert_eq!(read, if write_back { Ok(2) } else { Err(Errno::BADF) });
    }
}

#[test]
fn read_only_store_refuses_changes() {
    let tree = Tree::with(Settings { read_only: true, ..Settings::default() });
    std::fs::write(tree.inside("f"), "text").expect("a file");
    std::fs::create_dir(tree.inside("d")).expect("a directory");
    let (host, root) = (&tree.host, tree.root());
    let node = tree.find(&["f"]).expect("f").attributes.node;
    assert_eq!(host.open(node, RDWR), Err(Errno::ROFS));
    assert_eq!(host.open(node, WRONLY), Err(Errno::ROFS));
    assert_eq!(host.make(&caller(), root, b"g", FILE).map(|_| ()), Err(Errno::ROFS));
    assert_eq!(host.unlink(root, b"f"), Err(Errno::ROFS));
    assert_eq!(host.remove_directory(root, b"d"), Err(Errno::ROFS));
    assert_eq!(host.rename(root, b"f", root, b"g", false), Err(Errno::ROFS));
    assert_eq!(host.link(node, root, b"g").map(|_| ()), Err(Errno::ROFS));
    assert_eq!(
        host.change(node, &Changes { size: Some(0), ..Changes::default() }),
        Err(Errno::ROFS)
    );
    assert_eq!(host.set_xattr(node, b"user.x", b"", XattrMode::Any), Err(Errno::ROFS));
    assert_eq!(host.remove_xattr(node, b"user.x"), Err(Errno::ROFS));
    let handle = host.open(node, RDONLY).expect("open");
    assert_eq!(host.write(node, handle, 0, b"x"), Err(Errno::ROFS));
    assert_eq!(host.allocate(node, handle, 0, 0, 1), Err(Errno::ROFS));
    let mut read = [0; 4];
    assert_eq!(host.read(node, handle, 0, &mut read), Ok(4));
    assert_eq!(&read, b"text");
    host.close().expect("close");
}

#[test]
fn only_directories_can_be_served() {
    let tree = Tree::new();
    std::fs::write(tree.inside("f"), "").expect("a file");
    let open = |name| {
        kumihimo_host::Host::open(&tree.inside(name), Settings::default())
            .map(|_| ())
            .map_err(|e| e.kind())
    };
    assert_eq!(open("f"), Err(std::io::ErrorKind::NotADirectory));
    assert_eq!(open("none"), Err(std::io::ErrorKind::NotFound));
}
