//! chown(2).

use crate::cases::case::cases;

cases! {
    fn both(t) {
        t.file("f", "");
        t.chown("f", Some(1), Some(2));
        t.stat("f");
    }
    fn user_only(t) {
        t.file("f", "");
        t.chown("f", Some(1), None);
        t.stat("f");
    }
    fn group_only(t) {
        t.file("f", "");
        t.chown("f", None, Some(2));
        t.stat("f");
    }
    fn neither(t) {
        t.file("f", "");
        t.chown("f", None, None);
        t.stat("f");
    }
    /// ext2 stores the lower and the upper half of an ID in different fields.
    fn large_ids(t) {
        t.file("f", "");
        for id in [65534, 65535, 65536, 0x1234_5678, 0xffff_fffe] {
            t.chown("f", Some(id), Some(id));
            t.stat("f");
        }
    }
    fn directory(t) {
        t.directory("d");
        t.chown("d", Some(1), Some(2));
        t.stat("d");
    }
    fn through_a_link(t) {
        t.file("f", "");
        t.symlink("f", "s");
        t.chown("s", Some(1), Some(2));
        t.stat("f");
        t.lstat("s");
    }
    fn of_a_link(t) {
        t.file("f", "");
        t.symlink("f", "s");
        t.lchown("s", Some(1), Some(2));
        t.stat("f");
        t.lstat("s");
    }
    fn open_file(t) {
        t.file("f", "");
        let f = t.opened("f");
        t.unlink("f");
        t.fchown(&f, Some(1), Some(2));
        t.fstat(&f);
    }
    fn nothing(t) {
        t.chown("f", Some(1), None);
        t.chown("", Some(1), None);
        t.file("f", "");
        t.chown("f/x", Some(1), None);
        t.symlink("none", "s");
        t.chown("s", Some(1), None);
        t.lchown("s", Some(1), None);
        t.lstat("s");
    }
    fn clears_privileges(t) {
        t.file("f", "");
        for bits in [0o6755, 0o4755, 0o2755, 0o2745, 0o6644, 0o1755] {
            t.chmod("f", bits);
            t.chown("f", Some(1), Some(1));
            t.stat("f");
        }
    }
    fn clears_privileges_even_if_nothing_changes(t) {
        t.file("f", "");
        t.chmod("f", 0o6755);
        t.chown("f", Some(0), Some(0));
        t.stat("f");
        t.chmod("f", 0o6755);
        t.chown("f", None, None);
        t.stat("f");
    }
    fn leaves_a_directorys_bits(t) {
        t.directory("d");
        t.chmod("d", 0o6755);
        t.chown("d", Some(1), Some(1));
        t.stat("d");
    }
    fn by_the_owner(t) {
        t.file("f", "");
        t.chown("f", Some(1000), Some(1000));
        t.as_user(1000, |t| {
            t.chown("f", Some(1001), None);
            t.chown("f", Some(1000), None);
            t.chown("f", None, Some(1001));
            t.chown("f", None, Some(1000));
            t.chown("f", Some(1000), Some(1000));
        });
        t.stat("f");
    }
    fn to_another_group_of_the_owner(t) {
        t.file("f", "");
        t.chown("f", Some(1000), Some(1000));
        t.chmod("f", 0o6755);
        t.as_member(1000, &[1000, 2000], |t| t.chown("f", None, Some(2000)));
        t.stat("f");
    }
    fn by_another(t) {
        t.file("f", "");
        t.as_user(1000, |t| {
            t.chown("f", Some(1000), None);
            t.chown("f", None, Some(1000));
            t.chown("f", None, None);
        });
        t.stat("f");
    }
    fn new_files_belong_to_whoever_makes_them(t) {
        t.as_user(1000, |t| {
            t.file("f", "");
            t.directory("d");
            t.symlink("x", "s");
            t.mkfifo("p", 0o600);
        });
        for name in ["f", "d", "s", "p"] {
            t.lstat(name);
        }
    }
    fn new_files_with_two_groups(t) {
        t.as_member(1000, &[2000, 1000], |t| {
            t.file("f", "");
            t.chown("f", None, Some(1000));
            t.stat("f");
            t.chown("f", None, Some(2000));
        });
        t.stat("f");
    }
}
