//! Access control lists: denials, inheritance, and changes by chmod(2). Lists are given in the
//! encoding of setxattr(2).

use rustix::fs::{OFlags, XattrFlags};

use crate::cases::case::cases;

const ANY: XattrFlags = XattrFlags::empty();
const ACCESS: &str = "system.posix_acl_access";
const DEFAULT: &str = "system.posix_acl_default";
const NONE: u32 = u32::MAX;

/// Tags of entries.
const OWNER: u16 = 1;
const USER: u16 = 2;
const OWN_GROUP: u16 = 4;
const GROUP: u16 = 8;
const MASK: u16 = 16;
const OTHERS: u16 = 32;

fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        value.extend(tag.to_le_bytes());
        value.extend(permissions.to_le_bytes());
        value.extend(id.to_le_bytes());
    }
    value
}

/// Everybody may read, but not user 1000.
fn without_1000() -> Vec<u8> {
    list(&[
        (OWNER, 7, NONE),
        (USER, 0, 1000),
        (OWN_GROUP, 5, NONE),
        (MASK, 7, NONE),
        (OTHERS, 5, NONE),
    ])
}

cases! {
    fn named_user_is_denied(t) {
        t.file("f", "x");
        t.set_xattr("f", ACCESS, without_1000(), ANY);
        t.stat("f");
        t.get_xattr("f", ACCESS, 100);
        t.list_xattr("f", 100);
        t.as_user(1000, |t| {
            t.content("f");
            t.open("f", OFlags::WRONLY, 0);
        });
        t.as_user(1001, |t| t.content("f"));
    }
    fn named_group_is_denied(t) {
        t.file("f", "x");
        t.set_xattr("f", ACCESS, list(&[(OWNER, 6, NONE), (OWN_GROUP, 4, NONE), (GROUP, 0, 2000), (MASK, 4, NONE), (OTHERS, 4, NONE)]), ANY);
        t.as_user(1000, |t| t.content("f"));
        t.as_member(1000, &[1000, 2000], |t| t.content("f"));
    }
    fn named_user_is_allowed(t) {
        t.file("f", "x");
        t.set_xattr("f", ACCESS, list(&[(OWNER, 6, NONE), (USER, 6, 1000), (OWN_GROUP, 0, NONE), (MASK, 6, NONE), (OTHERS, 0, NONE)]), ANY);
        t.as_user(1000, |t| {
            t.content("f");
            t.open("f", OFlags::WRONLY, 0);
        });
        t.as_user(1001, |t| t.content("f"));
        t.chmod("f", 0o640);
        t.get_xattr("f", ACCESS, 100);
        t.as_user(1000, |t| {
            t.content("f");
            t.open("f", OFlags::WRONLY, 0);
        });
        t.remove_xattr("f", ACCESS);
        t.stat("f");
        t.as_user(1000, |t| t.content("f"));
    }
    fn list_of_a_directory_on_the_way_counts(t) {
        t.directory("d");
        t.file("d/f", "x");
        t.set_xattr("d", ACCESS, without_1000(), ANY);
        t.as_user(1000, |t| {
            t.content("d/f");
            t.list("d");
            t.mkdir("d/e", 0o755);
        });
        t.as_user(1001, |t| t.content("d/f"));
    }
    fn new_inodes_inherit_the_default_list(t) {
        t.directory("d");
        t.set_xattr("d", DEFAULT, without_1000(), ANY);
        t.umask(0o077);
        t.file("d/f", "x");
        t.mkdir("d/e", 0o777);
        t.file("d/e/g", "x");
        t.symlink("f", "d/s");
        for name in ["d/f", "d/e", "d/e/g"] {
            t.stat(name);
            t.get_xattr(name, ACCESS, 100);
            t.get_xattr(name, DEFAULT, 100);
            t.as_user(1000, |t| t.content(name));
            t.as_user(1001, |t| t.content(name));
        }
    }
    fn restricting_default_list_restricts_the_mode(t) {
        t.directory("d");
        t.set_xattr("d", DEFAULT, list(&[(OWNER, 7, NONE), (OWN_GROUP, 0, NONE), (OTHERS, 0, NONE)]), ANY);
        t.chmod("d", 0o777);
        t.file("d/f", "x");
        t.mkdir("d/e", 0o777);
        t.as_user(1001, |t| t.file("d/g", "y"));
        for name in ["d/f", "d/e", "d/g"] {
            t.stat(name);
            t.list_xattr(name, 100);
            t.as_user(1000, |t| t.content(name));
        }
        t.remove_xattr("d", DEFAULT);
        t.remove_xattr("d", DEFAULT);
        t.file("d/h", "x");
        t.stat("d/h");
    }
    fn only_the_owner_sets_a_list(t) {
        t.file("f", "x");
        t.as_user(1000, |t| t.set_xattr("f", ACCESS, without_1000(), ANY));
        t.chown("f", Some(1000), Some(1000));
        t.chmod("f", 0o2755);
        t.as_user(1000, |t| t.set_xattr("f", ACCESS, without_1000(), ANY));
        t.stat("f");
        t.chown("f", Some(1000), Some(3000));
        t.chmod("f", 0o2755);
        t.as_user(1000, |t| t.set_xattr("f", ACCESS, without_1000(), ANY));
        t.stat("f");
    }
    fn invalid_lists_are_refused(t) {
        t.file("f", "x");
        t.set_xattr("f", ACCESS, list(&[(OWNER, 7, NONE), (USER, 0, 1000), (OWN_GROUP, 5, NONE), (OTHERS, 5, NONE)]), ANY);
        t.set_xattr("f", ACCESS, [1, 0, 0, 0], ANY);
        t.set_xattr("f", DEFAULT, without_1000(), ANY);
        t.stat("f");
    }
}
