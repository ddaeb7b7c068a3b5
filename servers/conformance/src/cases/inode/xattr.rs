//! Extended attributes.

use rustix::fs::XattrFlags;

use crate::cases::case::cases;

const ANY: XattrFlags = XattrFlags::empty();

cases! {
    fn set_and_get(t) {
        t.file("f", "");
        t.set_xattr("f", "user.a", "value", ANY);
        t.get_xattr("f", "user.a", 100);
        t.list_xattr("f", 100);
    }
    fn of_a_directory(t) {
        t.directory("d");
        t.set_xattr("d", "user.a", "value", ANY);
        t.get_xattr("d", "user.a", 100);
        t.list_xattr("d", 100);
    }
    fn of_a_link(t) {
        t.file("f", "");
        t.symlink("f", "s");
        t.set_xattr("s", "user.a", "x", ANY);
        t.set_xattr("s", "trusted.a", "x", ANY);
        t.get_xattr("s", "trusted.a", 10);
        t.list_xattr("s", 100);
        t.list_xattr("f", 100);
    }
    fn of_a_fifo(t) {
        t.mkfifo("p", 0o600);
        t.set_xattr("p", "user.a", "x", ANY);
        t.set_xattr("p", "trusted.a", "x", ANY);
        t.list_xattr("p", 100);
    }
    fn none(t) {
        t.file("f", "");
        t.get_xattr("f", "user.a", 10);
        t.list_xattr("f", 10);
        t.remove_xattr("f", "user.a");
        t.get_xattr("none", "user.a", 10);
        t.list_xattr("none", 10);
    }
    fn new_only(t) {
        t.file("f", "");
        t.set_xattr("f", "user.a", "1", XattrFlags::CREATE);
        t.set_xattr("f", "user.a", "2", XattrFlags::CREATE);
        t.get_xattr("f", "user.a", 10);
    }
    fn old_only(t) {
        t.file("f", "");
        t.set_xattr("f", "user.a", "1", XattrFlags::REPLACE);
        t.set_xattr("f", "user.a", "2", ANY);
        t.set_xattr("f", "user.a", "3", XattrFlags::REPLACE);
        t.get_xattr("f", "user.a", 10);
    }
    fn both_flags(t) {
        t.file("f", "");
        t.set_xattr("f", "user.a", "1", XattrFlags::REPLACE | XattrFlags::CREATE);
        t.set_xattr("f", "user.a", "1", ANY);
        t.set_xattr("f", "user.a", "2", XattrFlags::REPLACE | XattrFlags::CREATE);
    }
    fn empty_value(t) {
        t.file("f", "");
        t.set_xattr("f", "user.a", "", ANY);
        t.get_xattr("f", "user.a", 10);
        t.get_xattr("f", "user.a", 0);
        t.list_xattr("f", 100);
    }
    fn too_little_room(t) {
        t.file("f", "");
        t.set_xattr("f", "user.a", "0123456789", ANY);
        for room in [0, 1, 9, 10, 11] {
            t.get_xattr("f", "user.a", room);
        }
        for room in [0, 1, 6, 7, 8] {
            t.list_xattr("f", room);
        }
    }
    fn another_length(t) {
        t.file("f", "");
        for length in [1, 100, 3, 500, 0, 7] {
            t.set_xattr("f", "user.a", "x".repeat(length), ANY);
            t.get_xattr("f", "user.a", 1000);
        }
    }
    fn many(t) {
        t.file("f", "");
        for n in 0..20 {
            t.set_xattr("f", format!("user.name-{n}").as_str(), format!("value {n}"), ANY);
        }
        t.list_xattr("f", 1000);
        for n in (0..20).step_by(2) {
            t.remove_xattr("f", format!("user.name-{n}").as_str());
        }
        t.list_xattr("f", 1000);
        for n in 0..20 {
            t.get_xattr("f", format!("user.name-{n}").as_str(), 100);
        }
    }
    fn removed(t) {
        t.file("f", "");
        t.set_xattr("f", "user.a", "1", ANY);
        t.set_xattr("f", "user.b", "2", ANY);
        t.remove_xattr("f", "user.a");
        t.remove_xattr("f", "user.a");
        t.list_xattr("f", 100);
        t.remove_xattr("f", "user.b");
        t.list_xattr("f", 100);
    }
    fn name_of_255_bytes(t) {
        t.file("f", "");
        let name = format!("user.{}", "n".repeat(250));
        t.set_xattr("f", name.as_str(), "x", ANY);
        t.get_xattr("f", name.as_str(), 10);
        let longer = format!("{name}n");
        t.set_xattr("f", longer.as_str(), "x", ANY);
        t.get_xattr("f", longer.as_str(), 10);
        t.remove_xattr("f", longer.as_str());
    }
    fn empty_names(t) {
        t.file("f", "");
        t.set_xattr("f", "", "x", ANY);
        t.set_xattr("f", "user.", "x", ANY);
        t.set_xattr("f", "user", "x", ANY);
        t.get_xattr("f", "", 10);
        t.get_xattr("f", "user.", 10);
    }
    fn unknown_prefix(t) {
        t.file("f", "");
        for name in ["nothing.a", "a", ".a", "USER.a", "system.a"] {
            t.set_xattr("f", name, "x", ANY);
            t.get_xattr("f", name, 10);
            t.remove_xattr("f", name);
        }
    }
    fn too_large_for_the_file_system(t) {
        t.file("f", "");
        t.set_xattr("f", "user.a", vec![b'x'; 5000], ANY);
        t.set_xattr("f", "user.a", vec![b'x'; 65536], ANY);
        t.set_xattr("f", "user.a", vec![b'x'; 65537], ANY);
        t.list_xattr("f", 100);
    }
    fn as_large_as_fits(t) {
        t.file("f", "");
        t.set_xattr("f", "user.a", vec![b'x'; 3000], ANY);
        t.get_xattr("f", "user.a", 5000);
        t.set_xattr("f", "user.b", vec![b'y'; 3000], ANY);
        t.list_xattr("f", 100);
        t.get_xattr("f", "user.a", 5000);
    }
    fn trusted_and_security(t) {
        t.file("f", "");
        t.set_xattr("f", "trusted.a", "1", ANY);
        t.set_xattr("f", "security.a", "2", ANY);
        t.get_xattr("f", "trusted.a", 10);
        t.get_xattr("f", "security.a", 10);
        t.list_xattr("f", 100);
    }
    fn odd_names(t) {
        t.file("f", "");
        t.set_xattr("f", b"user.\xff\n ", "x", ANY);
        t.get_xattr("f", b"user.\xff\n ", 10);
        t.list_xattr("f", 100);
    }
    fn binary_values(t) {
        t.file("f", "");
        t.set_xattr("f", "user.a", [0, 255, 10, 0], ANY);
        t.get_xattr("f", "user.a", 10);
    }
    fn follow_a_rename_and_a_link(t) {
        t.file("f", "");
        t.set_xattr("f", "user.a", "x", ANY);
        t.link("f", "g");
        t.rename("f", "h");
        t.get_xattr("g", "user.a", 10);
        t.get_xattr("h", "user.a", 10);
        t.remove_xattr("g", "user.a");
        t.list_xattr("h", 10);
    }
    fn a_new_file_has_none(t) {
        t.file("f", "");
        t.set_xattr("f", "user.a", "x", ANY);
        t.unlink("f");
        t.file("f", "");
        t.list_xattr("f", 100);
    }
    fn two_files_with_the_same(t) {
        for name in ["f", "g", "h"] {
            t.file(name, "");
            t.set_xattr(name, "user.a", "x".repeat(500), ANY);
        }
        t.set_xattr("g", "user.a", "changed", ANY);
        for name in ["f", "g", "h"] {
            t.get_xattr(name, "user.a", 1000);
        }
        t.unlink("f");
        t.get_xattr("h", "user.a", 1000);
    }
    /// A minimal access control list, equivalent to mode 0640. Programs set such a list to copy a
    /// mode.
    fn access_control_list(t) {
        t.file("f", "");
        let entry = |tag: u8, permissions: u8| [tag, 0, permissions, 0, 255, 255, 255, 255];
        let list = [&[2, 0, 0, 0][..], &entry(1, 6), &entry(4, 4), &entry(32, 0)].concat();
        t.set_xattr("f", "system.posix_acl_access", &list, ANY);
        t.stat("f");
        t.get_xattr("f", "system.posix_acl_access", 100);
        t.list_xattr("f", 100);
        t.remove_xattr("f", "system.posix_acl_access");
    }
}
