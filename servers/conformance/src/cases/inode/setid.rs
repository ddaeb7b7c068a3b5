//! Operations that clear set-user-ID and set-group-ID, and inheritance of groups from set-group-ID
//! directories.

use rustix::fs::OFlags;

use crate::cases::case::cases;

cases! {
    fn write_by_root_leaves_them(t) {
        t.file("f", "");
        t.chmod("f", 0o6777);
        let f = t.opened("f");
        t.write(&f, "x");
        t.stat("f");
    }
    fn write_by_user_takes_them(t) {
        t.file("f", "");
        t.chmod("f", 0o6777);
        t.as_user(1000, |t| {
            let f = t.opened("f");
            t.write(&f, "x");
        });
        t.stat("f");
    }
    fn write_by_the_owner_takes_them(t) {
        t.file("f", "");
        t.chown("f", Some(1000), Some(1000));
        t.chmod("f", 0o6755);
        t.as_user(1000, |t| {
            let f = t.opened("f");
            t.write(&f, "x");
        });
        t.stat("f");
    }
    fn set_group_id_without_execution_stays(t) {
        t.file("f", "");
        t.chmod("f", 0o2666);
        t.as_user(1000, |t| {
            let f = t.opened("f");
            t.write(&f, "x");
        });
        t.stat("f");
    }
    fn truncation_by_user(t) {
        t.file("f", "content");
        t.chmod("f", 0o6777);
        t.as_user(1000, |t| t.truncate("f", 1));
        t.stat("f");
    }
    fn truncation_by_root(t) {
        t.file("f", "content");
        t.chmod("f", 0o6777);
        t.truncate("f", 1);
        t.stat("f");
    }
    fn open_truncating_by_user(t) {
        t.file("f", "content");
        t.chmod("f", 0o6777);
        t.as_user(1000, |t| {
            t.open("f", OFlags::WRONLY | OFlags::TRUNC, 0);
        });
        t.stat("f");
    }
    fn open_and_read_leave_them(t) {
        t.file("f", "x");
        t.chmod("f", 0o6777);
        t.as_user(1000, |t| {
            t.open("f", OFlags::RDWR, 0);
            t.content("f");
        });
        t.stat("f");
    }
    fn an_empty_write_leaves_them(t) {
        t.file("f", "x");
        t.chmod("f", 0o6777);
        t.as_user(1000, |t| {
            let f = t.opened("f");
            t.write(&f, "");
        });
        t.stat("f");
    }
    fn link_and_rename_leave_them(t) {
        t.file("f", "x");
        t.chmod("f", 0o6755);
        t.link("f", "g");
        t.rename("g", "h");
        t.unlink("h");
        t.stat("f");
    }
    fn utimens_leaves_them(t) {
        t.file("f", "x");
        t.chown("f", Some(1000), Some(1000));
        t.chmod("f", 0o6755);
        t.as_user(1000, |t| {
            t.before("f");
        });
        t.stat("f");
    }
    fn directory_gives_its_group_on(t) {
        t.directory("d");
        t.chown("d", None, Some(77));
        t.chmod("d", 0o2777);
        t.file("d/f", "");
        t.mkdir("d/e", 0o755);
        t.symlink("x", "d/s");
        t.mkfifo("d/p", 0o600);
        for name in ["d/f", "d/e", "d/s", "d/p"] {
            t.lstat(name);
        }
        t.mkdir("d/e/g", 0o700);
        t.stat("d/e/g");
    }
    fn directory_without_it_does_not(t) {
        t.directory("d");
        t.chown("d", None, Some(77));
        t.chmod("d", 0o777);
        t.file("d/f", "");
        t.mkdir("d/e", 0o755);
        t.stat("d/f");
        t.stat("d/e");
    }
    fn user_in_anothers_group_directory(t) {
        t.directory("d");
        t.chown("d", None, Some(77));
        t.chmod("d", 0o2777);
        t.as_user(1000, |t| {
            t.file("d/f", "");
            t.open("d/g", OFlags::CREATE | OFlags::WRONLY, 0o2775);
            t.mkdir("d/e", 0o2755);
            t.mkdir("d/h", 0o755);
        });
        for name in ["d/f", "d/g", "d/e", "d/h"] {
            t.stat(name);
        }
    }
    fn rename_into_it_keeps_the_group(t) {
        t.directory("d");
        t.chown("d", None, Some(77));
        t.chmod("d", 0o2777);
        t.file("f", "");
        t.rename("f", "d/f");
        t.stat("d/f");
        t.file("g", "");
        t.link("g", "d/g");
        t.stat("d/g");
    }
    fn made_with_the_bits(t) {
        t.open("f", OFlags::CREATE | OFlags::WRONLY, 0o6755);
        t.stat("f");
        t.as_user(1000, |t| {
            t.open("g", OFlags::CREATE | OFlags::WRONLY, 0o6755);
        });
        t.stat("g");
    }
}
