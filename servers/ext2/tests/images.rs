//! Images made by mke2fs, written by this crate, checked by e2fsck and read by debugfs. Also images
//! written by the kernel or by mke2fs, read by this crate.

mod image;

use std::process::Command;

use kumihimo_store::{Changes, Errno, Kind, New, Seek, Stamp, Store, Time, XattrMode};

use image::{
    Image, Mounted, NONE, ROOT, directory, file, find, has_e2fsprogs, names, pattern, read_all,
    run, write_all,
};

const SHAPES: [[&str; 4]; 6] = [
    ["-b", "1024", "-I", "128"],
    ["-b", "1024", "-I", "256"],
    ["-b", "2048", "-I", "128"],
    ["-b", "2048", "-I", "256"],
    ["-b", "4096", "-I", "128"],
    ["-b", "4096", "-I", "256"],
];

#[test]
fn operations_leave_a_clean_image() {
    if !has_e2fsprogs("operations_leave_a_clean_image") {
        return;
    }
    for (number, shape) in SHAPES.iter().enumerate() {
        let image = Image::made(&format!("live-{number}"), 32 << 20, shape);
        let contents = pattern(3_000_000, 7);
        {
            let store = image.open();
            let root = store.root();
            let a = directory(&store, root, "a");
            let big = file(&store, a, "big");
            write_all(&store, big, 0, &contents);
            assert_eq!(read_all(&store, big), contents);
            let link = store
                .make(&ROOT, root, b"short", New::Symlink { target: b"a/big" })
                .expect("a link");
            assert_eq!(store.read_link(link.attributes.node).expect("target"), b"a/big");
            let target = pattern(900, 3).iter().map(|byte| b'a' + byte % 26).collect::<Vec<u8>>();
            let long =
                store.make(&ROOT, root, b"long", New::Symlink { target: &target }).expect("a link");
            assert_eq!(store.read_link(long.attributes.node).expect("target"), target);
            let device = New::Special { kind: Kind::BlockDevice, mode: 0o600, device: 0x0801 };
            assert_eq!(
                store.make(&ROOT, root, b"sda1", device).expect("a device").attributes.device,
                0x0801
            );
            let device = New::Special { kind: Kind::CharDevice, mode: 0o600, device: 0x0123_4567 };
            store.make(&ROOT, root, b"new", device).expect("a device");
            store.link(big, root, b"also").expect("a link");
            store.rename(a, b"big", root, b"moved", false).expect("a rename");
            assert_eq!(store.lookup(a, b"big").unwrap_err(), Errno::NOENT);
            assert_eq!(store.attributes(big).expect("attributes").links, 2);
            let gone = file(&store, a, "gone");
            write_all(&store, gone, 0, b"still there");
            store.unlink(a, b"gone").expect("unlink");
            assert_eq!(read_all(&store, gone), b"still there");
            store.forget(gone, 1);
            assert_eq!(store.attributes(gone).unwrap_err(), Errno::STALE);
            assert_eq!(store.remove_directory(root, b"moved").unwrap_err(), Errno::NOTDIR);
            let b = directory(&store, a, "b");
            assert_eq!(store.remove_directory(root, b"a").unwrap_err(), Errno::NOTEMPTY);
            assert_eq!(store.rename(root, b"a", b, b"x", false).unwrap_err(), Errno::INVAL);
            store.rename(a, b"b", root, b"b", false).expect("a directory moves");
            assert_eq!(store.lookup(b, b"..").expect("..").attributes.node, root);
            let cut = Changes { size: Some(1_234_567), ..Changes::default() };
            store.change(big, &cut).expect("truncate");
            store.close().expect("close");
        }
        image.check();
        assert_eq!(image.debugfs("cat /moved"), contents[..1_234_567]);
        let store = image.open();
        let root = store.root();
        assert_eq!(read_all(&store, find(&store, root, "also")), contents[..1_234_567]);
        assert_eq!(store.lookup(root, b"new").expect("new").attributes.device, 0x0123_4567);
        let mut all = names(&store, root);
        all.sort();
        assert_eq!(
            all,
            [".", "..", "a", "also", "b", "long", "lost+found", "moved", "new", "sda1", "short"]
        );
        for name in ["moved", "also", "long", "short", "new", "sda1"] {
            store.unlink(root, name.as_bytes()).expect(name);
        }
        store.remove_directory(root, b"a").expect("rmdir");
        store.remove_directory(root, b"b").expect("rmdir");
        store.forget(find(&store, root, "lost+found"), 1);
        store.close().expect("close");
        drop(store);
        image.check();
    }
}

#[test]
fn holes_are_found_punched_and_filled() {
    if !has_e2fsprogs("holes_are_found_punched_and_filled") {
        return;
    }
    let image = Image::made("sparse", 64 << 20, &["-b", "1024", "-I", "256"]);
    let store = image.open();
    let root = store.root();
    let node = file(&store, root, "sparse");
    // One block at each level of indirection, the last beyond 4 GiB.
    for offset in [0, 20 << 10, 400 << 10, 5 << 30] {
        write_all(&store, node, offset, b"island");
    }
    let size = store.attributes(node).expect("attributes").size;
    assert_eq!(size, (5 << 30) + 6);
    let mut at = 0;
    for expected in [0, 20 << 10, 400 << 10, 5 << 30] {
        at = store.seek(node, NONE, at, Seek::Data).expect("data");
        assert_eq!(at, expected);
        let mut bytes = [0; 6];
        store.read(node, NONE, at, &mut bytes).expect("read");
        assert_eq!(&bytes, b"island");
        at = store.seek(node, NONE, at, Seek::Hole).expect("hole");
        assert_eq!(at, (expected + 1024).min(size));
    }
    assert_eq!(store.seek(node, NONE, at, Seek::Data).unwrap_err(), Errno::NXIO);
    let limit = store.change(node, &Changes { size: Some(1 << 45), ..Changes::default() });
    assert_eq!(limit.unwrap_err(), Errno::FBIG);
    let full = file(&store, root, "full");
    let contents = pattern(600_000, 5);
    write_all(&store, full, 0, &contents);
    store.allocate(full, NONE, 3, 1_000, 500_000).expect("punch");
    let mut expected = contents;
    expected[1_000..501_000].fill(0);
    assert_eq!(read_all(&store, full), expected);
    store.allocate(full, NONE, 0, 0, 700_000).expect("fill");
    expected.resize(700_000, 0);
    assert_eq!(read_all(&store, full), expected);
    assert!(store.attributes(full).expect("attributes").blocks >= 1368);
    assert_eq!(store.allocate(full, NONE, 8, 0, 1024).unwrap_err(), Errno::OPNOTSUPP);
    store.close().expect("close");
    drop(store);
    image.check();
    assert_eq!(image.debugfs("cat /full"), expected);
}

#[test]
fn directory_holds_a_hundred_thousand_names() {
    if !has_e2fsprogs("directory_holds_a_hundred_thousand_names") {
        return;
    }
    let image = Image::made("names", 256 << 20, &["-b", "4096", "-I", "128", "-N", "110000"]);
    let store = image.open();
    let many = directory(&store, store.root(), "many");
    for number in 0..100_000 {
        let node = file(&store, many, &format!("name number {number}"));
        store.forget(node, 1);
    }
    assert_eq!(names(&store, many).len(), 100_002);
    for number in (0..100_000).step_by(2) {
        store.unlink(many, format!("name number {number}").as_bytes()).expect("unlink");
    }
    assert_eq!(names(&store, many).len(), 50_002);
    find(&store, many, "name number 77777");
    assert_eq!(store.lookup(many, b"name number 77776").unwrap_err(), Errno::NOENT);
    store.close().expect("close");
    drop(store);
    image.check();
}

#[test]
fn full_image_reports_enospc_and_recovers() {
    if !has_e2fsprogs("full_image_reports_enospc_and_recovers") {
        return;
    }
    let image = Image::made("full", 4 << 20, &["-b", "1024", "-N", "64"]);
    let store = image.open();
    let root = store.root();
    for round in 0..3 {
        let node = file(&store, root, "filler");
        let mut offset = 0;
        let block = pattern(10_000, 9);
        let error = loop {
            match store.write(node, NONE, offset, &block) {
                Ok(written) => offset += written as u64,
                Err(errno) => break errno,
            }
        };
        assert_eq!(error, Errno::NOSPC, "round {round}");
        assert_eq!(store.statistics().expect("statistics").free, 0);
        let refused = store.make(&ROOT, root, b"directory", New::Directory { mode: 0o755 });
        assert_eq!(refused.unwrap_err(), Errno::NOSPC);
        store.unlink(root, b"filler").expect("unlink");
        store.forget(node, 1);
    }
    let mut made = 0;
    let error = loop {
        match store.make(&ROOT, root, format!("file {made}").as_bytes(), New::File { mode: 0o600 })
        {
            Ok(_) => made += 1,
            Err(errno) => break errno,
        }
    };
    assert_eq!(error, Errno::NOSPC);
    assert_eq!(store.statistics().expect("statistics").free_inodes, 0);
    store.close().expect("close");
    drop(store);
    image.check();
}

#[test]
fn repeated_replacement_leaves_a_clean_image() {
    if !has_e2fsprogs("repeated_replacement_leaves_a_clean_image") {
        return;
    }
    let image = Image::made("replace", 8 << 20, &["-b", "1024"]);
    let store = image.open();
    let root = store.root();
    let other = directory(&store, root, "other");
    for round in 0..200_u32 {
        let from = if round % 3 == 0 { other } else { root };
        let node = file(&store, from, "new");
        write_all(&store, node, 0, format!("round {round}").as_bytes());
        if round % 5 == 0 {
            store.sync(node, NONE, false).expect("sync");
        }
        store.rename(from, b"new", root, b"current", false).expect("rename");
        store.forget(node, 1);
        let current = find(&store, root, "current");
        assert_eq!(read_all(&store, current), format!("round {round}").as_bytes());
        store.forget(current, 1);
    }
    store.close().expect("close");
    drop(store);
    image.check();
}

#[test]
fn extended_attributes_and_times_are_stored() {
    if !has_e2fsprogs("extended_attributes_and_times_are_stored") {
        return;
    }
    for (number, shape) in SHAPES.iter().enumerate() {
        let image = Image::made(&format!("attributes-{number}"), 8 << 20, shape);
        let store = image.open();
        let root = store.root();
        let node = file(&store, root, "file");
        store.set_xattr(node, b"user.colour", b"blue", XattrMode::Create).expect("set");
        store
            .set_xattr(node, b"user.a-longer-name", &pattern(300, 4), XattrMode::Any)
            .expect("set");
        store.set_xattr(node, b"trusted.t", b"", XattrMode::Any).expect("set");
        store.set_xattr(node, b"security.s", b"12345", XattrMode::Any).expect("set");
        assert_eq!(
            store.set_xattr(node, b"user.colour", b"x", XattrMode::Create).unwrap_err(),
            Errno::EXIST
        );
        assert_eq!(
            store.set_xattr(node, b"user.none", b"x", XattrMode::Replace).unwrap_err(),
            Errno::NODATA
        );
        assert_eq!(
            store.set_xattr(node, b"nonsense", b"x", XattrMode::Any).unwrap_err(),
            Errno::OPNOTSUPP
        );
        assert_eq!(
            store.set_xattr(node, b"user.large", &[0; 5000], XattrMode::Any).unwrap_err(),
            Errno::NOSPC
        );
        let acl = [
            2, 0, 0, 0, 1, 0, 6, 0, 255, 255, 255, 255, 2, 0, 4, 0, 232, 3, 0, 0, 4, 0, 4, 0, 255,
            255, 255, 255, 16, 0, 4, 0, 255, 255, 255, 255, 32, 0, 0, 0, 255, 255, 255, 255,
        ];
        assert_eq!(
            store.set_xattr(node, b"system.posix_acl_access", &acl[..28], XattrMode::Any),
            Err(Errno::INVAL)
        );
        store.set_xattr(node, b"system.posix_acl_access", &acl, XattrMode::Any).expect("set");
        assert_eq!(store.xattr(node, b"system.posix_acl_access").expect("acl"), acl);
        assert_eq!(store.attributes(node).expect("attributes").permissions, 0o640);
        let late = Time { seconds: 5_000_000_000, nanoseconds: 123_456_789 };
        let early = Time { seconds: -5, nanoseconds: 0 };
        let times = Changes {
            mtime: Some(Stamp::At(late)),
            atime: Some(Stamp::At(early)),
            ..Changes::default()
        };
        store.change(node, &times).expect("times");
        let other = file(&store, root, "other");
        store.set_xattr(other, b"user.only", b"one", XattrMode::Any).expect("set");
        store.remove_xattr(other, b"user.only").expect("remove");
        assert_eq!(store.remove_xattr(other, b"user.only").unwrap_err(), Errno::NODATA);
        store.close().expect("close");
        drop(store);
        image.check();
        assert_eq!(image.debugfs("ea_get -V /file user.colour"), b"blue\n");
        let store = image.open();
        let node = find(&store, store.root(), "file");
        let listed = store.xattrs(node).expect("list");
        let mut listed: Vec<&[u8]> =
            listed.split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
        listed.sort_unstable();
        let expected: [&[u8]; 5] = [
            b"security.s",
            b"system.posix_acl_access",
            b"trusted.t",
            b"user.a-longer-name",
            b"user.colour",
        ];
        assert_eq!(listed, expected);
        assert_eq!(store.xattr(node, b"user.a-longer-name").expect("value"), pattern(300, 4));
        let attributes = store.attributes(node).expect("attributes");
        assert_eq!(attributes.atime, early);
        if shape[3] == "256" {
            assert_eq!(attributes.mtime, late);
        } else {
            assert_eq!(attributes.mtime, Time { seconds: i64::from(i32::MAX), nanoseconds: 0 });
        }
        store.unlink(store.root(), b"file").expect("unlink");
        store.forget(node, 1);
        store.close().expect("close");
        drop(store);
        image.check();
    }
}

#[test]
fn tree_made_by_mke2fs_is_readable() {
    if !has_e2fsprogs("tree_made_by_mke2fs_is_readable") {
        return;
    }
    let source = Image::empty("source", 0);
    let tree = source.directory.join("tree");
    std::fs::create_dir_all(tree.join("deep/er")).expect("directories");
    let contents = pattern(200_000, 11);
    std::fs::write(tree.join("deep/er/file"), &contents).expect("a file");
    std::os::unix::fs::symlink("deep/er/file", tree.join("link")).expect("a link");
    let path = tree.to_str().expect("a path").to_owned();
    let image = Image::made("filled", 16 << 20, &["-b", "1024", "-d", &path]);
    let store = image.try_open(true).expect("read only");
    let root = store.root();
    let deep = find(&store, root, "deep");
    let node = find(&store, find(&store, deep, "er"), "file");
    assert_eq!(read_all(&store, node), contents);
    assert_eq!(store.read_link(find(&store, root, "link")).expect("target"), b"deep/er/file");
    assert_eq!(store.write(node, NONE, 0, b"x").unwrap_err(), Errno::ROFS);
    assert_eq!(store.unlink(root, b"link").unwrap_err(), Errno::ROFS);
    store.close().expect("close");
    drop(store);
    image.check();
}

#[test]
fn hash_tree_of_the_kernel_is_readable_and_changeable() {
    if !has_e2fsprogs("hash_tree_of_the_kernel_is_readable_and_changeable") {
        return;
    }
    let image = Image::made("htree", 32 << 20, &["-b", "1024", "-O", "dir_index", "-N", "8000"]);
    {
        let Some(mounted) = Mounted::new(&image.path, image.directory.join("m"), "ext4") else {
            kumihimo_tests::skip(
                "hash_tree_of_the_kernel_is_readable_and_changeable",
                "the kernel mounts no image here",
            );
            return;
        };
        std::fs::create_dir(mounted.0.join("many")).expect("a directory");
        for number in 0..3000 {
            std::fs::write(mounted.0.join(format!("many/name number {number}")), b"kernel")
                .expect("a file");
        }
    }
    assert!(String::from_utf8_lossy(&image.debugfs("stat /many")).contains("Flags: 0x1000"));
    let store = image.open();
    let many = find(&store, store.root(), "many");
    assert_eq!(names(&store, many).len(), 3002);
    assert_eq!(read_all(&store, find(&store, many, "name number 2999")), b"kernel");
    for number in 0..1000 {
        store.unlink(many, format!("name number {number}").as_bytes()).expect("unlink");
        write_all(&store, file(&store, many, &format!("ours {number}")), 0, b"ours");
    }
    store.close().expect("close");
    drop(store);
    image.check();
    let mounted = Mounted::new(&image.path, image.directory.join("m"), "ext2")
        .expect("the kernel mounts it again");
    assert_eq!(std::fs::read_dir(mounted.0.join("many")).expect("names").count(), 3000);
    assert_eq!(std::fs::read(mounted.0.join("many/ours 999")).expect("ours"), b"ours");
}

#[test]
fn unclean_image_is_reported_and_repaired() {
    if !has_e2fsprogs("unclean_image_is_reported_and_repaired") {
        return;
    }
    let image = Image::made("unclean", 8 << 20, &["-b", "1024"]);
    {
        let store = image.open();
        let node = file(&store, store.root(), "kept");
        write_all(&store, node, 0, b"kept");
        store.sync(node, NONE, false).expect("sync");
        let open = file(&store, store.root(), "unlinked");
        write_all(&store, open, 0, &pattern(100_000, 2));
        store.sync_all().expect("sync");
        store.unlink(store.root(), b"unlinked").expect("unlink");
        store.sync_all().expect("sync");
    }
    drop(image.open());
    assert!(
        image.complaints.lock().expect("complaints")[0]
            .contains("not unmounted cleanly; run e2fsck")
    );
    image.complaints.lock().expect("complaints").clear();
    let output = run(Command::new("e2fsck").arg("-p").arg(&image.path));
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stdout));
    image.check();
    assert_eq!(image.debugfs("cat /kept"), b"kept");
}

#[test]
fn unsupported_images_are_refused() {
    if !has_e2fsprogs("unsupported_images_are_refused") {
        return;
    }
    let refused =
        |image: &Image, read_only| image.try_open(read_only).expect_err("refused").to_string();
    let image = Image::empty("refused", 8 << 20);
    assert!(refused(&image, true).contains("all zeroes"));
    for (options, what) in [
        (&["-t", "ext4"][..], "ext4's extents"),
        (&["-t", "ext2", "-O", "meta_bg,^resize_inode"], "meta_bg"),
        (&["-t", "ext2", "-O", "64bit,extent"], "ext4's 64bit"),
    ] {
        let output = run(Command::new("mke2fs").args(["-q", "-F"]).args(options).arg(&image.path));
        assert!(
            output.status.success(),
            "{options:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let said = refused(&image, true);
        assert!(said.contains(what), "{options:?}: {said}");
    }
    run(Command::new("mke2fs").args(["-q", "-F", "-t", "ext3"]).arg(&image.path));
    assert!(refused(&image, false).contains("journal"));
    image.try_open(true).expect("ext3 is read");
    run(Command::new("mke2fs").args(["-q", "-F", "-t", "ext2"]).arg(&image.path));
    let file = std::fs::OpenOptions::new().write(true).open(&image.path).expect("the image");
    file.set_len(3 << 20).expect("cut");
    let said = refused(&image, true);
    assert!(said.contains("its superblock counts 8192 blocks, the medium has 3072"), "{said}");
    file.set_len(0).expect("cut");
    assert!(refused(&image, true).contains("empty"));
    std::fs::write(&image.path, [&b"XFSB"[..], &[0; 8192]].concat()).expect("written");
    assert!(refused(&image, true).contains("XFS"));
}
