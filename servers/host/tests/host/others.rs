//! Owners, and a server without privileges.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};

use kumihimo_store::{Caller, Changes, Errno, Kind, New, Store};
use kumihimo_tests::{process, skip, user};

use crate::tree::{RDWR, Tree, caller};

const SOMEONE: Caller = Caller { uid: 1234, gid: 5678, pid: 1, umask: 0 };

const MADE: [(&str, New<'static>); 5] = [
    ("f", New::File { mode: 0o4640 }),
    ("d", New::Directory { mode: 0o750 }),
    ("s", New::Symlink { target: b"/none" }),
    ("p", New::Special { kind: Kind::Fifo, mode: 0o606, device: 0 }),
    ("c", New::Special { kind: Kind::CharDevice, mode: 0o600, device: 0x103 }),
];

#[test]
fn files_created_as_root_belong_to_the_caller() {
    let name = "files_created_as_root_belong_to_the_caller";
    if !rustix::process::geteuid().is_root() {
        return skip(name, "not root");
    }
    let tree = Tree::new();
    for (name, what) in MADE {
        let entry =
            tree.host.make(&SOMEONE, tree.root(), name.as_bytes(), what).expect(name).attributes;
        let metadata = std::fs::symlink_metadata(tree.inside(name)).expect(name);
        assert_eq!(
            (entry.uid, entry.gid, metadata.uid(), metadata.gid()),
            (1234, 5678, 1234, 5678),
            "{name}"
        );
        let mode = match what {
            New::Symlink { .. } => 0o777,
            New::File { mode } | New::Directory { mode } | New::Special { mode, .. } => mode,
        };
        assert_eq!((entry.permissions, metadata.mode() & 0o7777), (mode, mode), "{name}");
    }
    assert_eq!(tree.find(&["c"]).expect("c").attributes.device, 0x103);
    assert_eq!(std::fs::symlink_metadata(tree.inside("c")).expect("stat").rdev(), 0x103);
    // Group inherited from the set-group-ID directory.
    let shared = tree.make(tree.root(), "shared", New::Directory { mode: 0o2777 });
    tree.host
        .change(shared, &Changes { gid: Some(77), permissions: Some(0o2777), ..Changes::default() })
        .expect("chown");
    for (name, what) in MADE {
        let entry = tree.host.make(&SOMEONE, shared, name.as_bytes(), what).expect(name).attributes;
        assert_eq!((entry.uid, entry.gid), (1234, 77), "{name}");
        let below = if name == "d" { 0o2000 } else { 0 };
        assert_eq!(entry.permissions & 0o2000, below, "{name}");
    }
}

/// A change of owner clears set-ID bits. For a server that runs as root, the client's kernel
/// requests this.
#[test]
fn chown_clears_set_id_bits() {
    let name = "chown_clears_set_id_bits";
    if !rustix::process::geteuid().is_root() {
        return skip(name, "not root");
    }
    let tree = Tree::new();
    let f = tree.make(tree.root(), "f", New::File { mode: 0o6755 });
    let now =
        tree.host.change(f, &Changes { uid: Some(1), kill_privileges: true, ..Changes::default() });
    assert_eq!(now.map(|now| (now.uid, now.permissions)), Ok((1, 0o755)));
    let now = tree
        .host
        .change(f, &Changes { gid: Some(9), permissions: Some(0o4711), ..Changes::default() });
    assert_eq!(now.map(|now| (now.gid, now.permissions)), Ok((9, 0o4711)));
}

#[test]
fn unprivileged_server_obeys_host_permissions() {
    const NAME: &str = "others::unprivileged_server_obeys_host_permissions";
    if !rustix::process::geteuid().is_root() {
        return skip(NAME, "not root");
    }
    if !process::is_child(NAME) {
        let tree = Tree::new();
        chown(tree.inside(""), Some(65534), Some(65534)).expect("chown");
        std::fs::write(tree.inside("roots"), "").expect("a file");
        std::fs::create_dir(tree.inside("closed")).expect("a directory");
        std::fs::write(tree.inside("closed/f"), "").expect("a file");
        for name in ["roots", "closed"] {
            std::fs::set_permissions(tree.inside(name), PermissionsExt::from_mode(0o700))
                .expect("chmod");
        }
        let path = tree.inside("").into_os_string().into_string().expect("UTF-8");
        let ended = process::again(NAME, &[("SERVED", &path)]);
        return assert!(ended.status.success(), "{}", ended.told());
    }
    {
        let path = std::env::var_os("SERVED").expect("set by the parent process");
        assert!(user::become_user(65534));
        let host = kumihimo_host::Host::open(path.as_ref(), kumihimo_host::Settings::default())
            .expect("a store");
        let root = host.root();
        let roots = host.lookup(root, b"roots").expect("its name is seen").attributes.node;
        assert_eq!(host.open(roots, RDWR), Err(Errno::ACCESS));
        assert_eq!(
            host.change(roots, &Changes { permissions: Some(0o777), ..Changes::default() }),
            Err(Errno::PERM)
        );
        assert_eq!(
            host.change(roots, &Changes { uid: Some(65534), ..Changes::default() }),
            Err(Errno::PERM)
        );
        assert_eq!(
            host.change(roots, &Changes { size: Some(0), ..Changes::default() }),
            Err(Errno::ACCESS)
        );
        let closed = host.lookup(root, b"closed").expect("its name is seen").attributes.node;
        assert_eq!(host.lookup(closed, b"f").map(|_| ()), Err(Errno::ACCESS));
        assert_eq!(
            host.make(&caller(), closed, b"g", New::File { mode: 0o600 }).map(|_| ()),
            Err(Errno::ACCESS)
        );
        // New files belong to the server's user, whatever the caller is.
        for (name, what) in MADE {
            let made = host.make(&SOMEONE, root, name.as_bytes(), what);
            match what {
                New::Special { kind: Kind::CharDevice, .. } => {
                    assert_eq!(made.map(|_| ()), Err(Errno::PERM))
                }
                _ => assert_eq!(made.expect(name).attributes.uid, 65534, "{name}"),
            }
        }
        let f = host.lookup(root, b"f").expect("f").attributes;
        assert_eq!(f.permissions, 0o4640);
        let handle = host.open(f.node, RDWR).expect("open");
        assert_eq!(host.write(f.node, handle, 0, b"x"), Ok(1));
    }
}
