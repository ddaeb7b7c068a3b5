//! utimensat(2), and the times that each call changes.

use rustix::fs::{AtFlags, OFlags, Timespec, UTIME_NOW, UTIME_OMIT, XattrFlags};

use crate::cases::case::cases;

const fn at(tv_sec: i64, tv_nsec: u32) -> Timespec {
    Timespec { tv_sec, tv_nsec: tv_nsec as _ }
}
const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
const OMIT: Timespec = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
const FOLLOW: AtFlags = AtFlags::empty();
const NOFOLLOW: AtFlags = AtFlags::SYMLINK_NOFOLLOW;

cases! {
    fn set(t) {
        t.file("f", "");
        t.utimens("f", at(1_000, 0), at(2_000, 0), FOLLOW);
        t.times("f");
    }
    fn nanoseconds(t) {
        t.file("f", "");
        t.utimens("f", at(1_000, 123_456_789), at(2_000, 999_999_999), FOLLOW);
        t.times("f");
    }
    fn before_1970(t) {
        t.file("f", "");
        t.utimens("f", at(-1, 0), at(-1_000_000_000, 5), FOLLOW);
        t.times("f");
    }
    fn after_2038(t) {
        t.file("f", "");
        t.utimens("f", at(1 << 31, 0), at((1 << 32) + 5, 7), FOLLOW);
        t.times("f");
    }
    fn far_too_late(t) {
        t.file("f", "");
        t.utimens("f", at(1 << 40, 0), at(1 << 34, 0), FOLLOW);
        t.times("f");
    }
    fn far_too_early(t) {
        t.file("f", "");
        t.utimens("f", at(-(1 << 40), 0), at(-(1 << 32), 0), FOLLOW);
        t.times("f");
    }
    fn wrong_nanoseconds(t) {
        t.file("f", "");
        t.utimens("f", at(5, 1_000_000_000), at(5, 0), FOLLOW);
        t.utimens("f", at(5, 0), at(5, u32::MAX), FOLLOW);
    }
    fn omit_one(t) {
        t.file("f", "");
        t.utimens("f", at(10, 0), at(20, 0), FOLLOW);
        t.utimens("f", OMIT, at(30, 0), FOLLOW);
        t.times("f");
        t.utimens("f", at(40, 0), OMIT, FOLLOW);
        t.times("f");
    }
    fn omit_both(t) {
        t.file("f", "");
        let before = t.before("f");
        t.utimens("f", OMIT, OMIT, FOLLOW);
        t.after("f", &before);
    }
    fn now(t) {
        t.file("f", "");
        let before = t.before("f");
        t.utimens("f", NOW, NOW, FOLLOW);
        t.after("f", &before);
    }
    fn now_and_omit(t) {
        t.file("f", "");
        let before = t.before("f");
        t.utimens("f", NOW, OMIT, FOLLOW);
        t.after("f", &before);
    }
    fn set_advances_ctime(t) {
        t.file("f", "");
        let before = t.before("f");
        t.utimens("f", at(10, 0), at(20, 0), FOLLOW);
        t.after("f", &before);
    }
    fn of_a_link(t) {
        t.file("f", "");
        t.symlink("f", "s");
        t.utimens("f", at(10, 0), at(20, 0), FOLLOW);
        t.utimens("s", at(30, 0), at(40, 0), NOFOLLOW);
        t.times("s");
        t.times("f");
        t.utimens("s", at(50, 0), at(60, 0), FOLLOW);
        t.times("f");
    }
    fn of_a_directory(t) {
        t.directory("d");
        t.utimens("d", at(10, 5), at(20, 6), FOLLOW);
        t.times("d");
    }
    fn of_an_open_file(t) {
        t.file("f", "");
        let f = t.open("f", OFlags::RDONLY, 0);
        t.unlink("f");
        t.futimens(&f, at(1, 2), at(3, 4));
        t.fstat(&f);
    }
    fn of_nothing(t) {
        t.utimens("f", NOW, NOW, FOLLOW);
        t.utimens("f", OMIT, OMIT, FOLLOW);
        t.symlink("none", "s");
        t.utimens("s", NOW, NOW, FOLLOW);
    }
    fn by_a_writer(t) {
        t.file("f", "");
        t.chmod("f", 0o666);
        t.as_user(1000, |t| {
            t.utimens("f", NOW, NOW, FOLLOW);
            t.utimens("f", at(1, 0), at(2, 0), FOLLOW);
            t.utimens("f", NOW, OMIT, FOLLOW);
            t.utimens("f", OMIT, OMIT, FOLLOW);
        });
    }
    fn by_a_reader(t) {
        t.file("f", "");
        t.chmod("f", 0o644);
        t.as_user(1000, |t| {
            t.utimens("f", NOW, NOW, FOLLOW);
            t.utimens("f", at(1, 0), at(2, 0), FOLLOW);
        });
    }
    fn by_the_owner(t) {
        t.file("f", "");
        t.chown("f", Some(1000), None);
        t.chmod("f", 0);
        t.as_user(1000, |t| {
            t.utimens("f", at(1, 0), at(2, 0), FOLLOW);
            t.utimens("f", NOW, NOW, FOLLOW);
        });
    }

    fn write_changes(t) {
        t.file("f", "x");
        let f = t.opened("f");
        let before = t.before("f");
        t.write(&f, "y");
        t.close(f);
        t.after("f", &before);
    }
    fn empty_write_changes_nothing(t) {
        t.file("f", "x");
        let f = t.opened("f");
        let before = t.before("f");
        t.write(&f, "");
        t.close(f);
        t.after("f", &before);
    }
    fn read_changes(t) {
        t.file("f", "x");
        let before = t.before("f");
        t.content("f");
        t.after("f", &before);
    }
    fn empty_read_changes_nothing(t) {
        t.file("f", "x");
        let f = t.opened("f");
        let before = t.before("f");
        t.pread(&f, 0, 0);
        t.after("f", &before);
    }
    fn truncate_changes(t) {
        t.file("f", "xyz");
        let before = t.before("f");
        t.truncate("f", 1);
        t.after("f", &before);
    }
    fn truncate_to_the_same_size(t) {
        t.file("f", "xyz");
        let before = t.before("f");
        t.truncate("f", 3);
        t.after("f", &before);
    }
    fn ftruncate_to_the_same_size(t) {
        t.file("f", "xyz");
        let f = t.opened("f");
        let before = t.before("f");
        t.ftruncate(&f, 3);
        t.after("f", &before);
    }
    fn open_truncating_changes(t) {
        t.file("f", "xyz");
        let before = t.before("f");
        t.open("f", OFlags::WRONLY | OFlags::TRUNC, 0);
        t.after("f", &before);
    }
    fn open_truncating_an_empty_file(t) {
        t.file("f", "");
        let before = t.before("f");
        t.open("f", OFlags::WRONLY | OFlags::TRUNC, 0);
        t.after("f", &before);
    }
    fn open_changes_nothing(t) {
        t.file("f", "x");
        let before = t.before("f");
        t.open("f", OFlags::RDWR, 0);
        t.after("f", &before);
    }
    fn chmod_changes(t) {
        t.file("f", "");
        let before = t.before("f");
        t.chmod("f", 0o600);
        t.after("f", &before);
    }
    fn chown_changes(t) {
        t.file("f", "");
        let before = t.before("f");
        t.chown("f", Some(1), None);
        t.after("f", &before);
    }
    fn chown_to_the_same(t) {
        t.file("f", "");
        let before = t.before("f");
        t.chown("f", Some(0), Some(0));
        t.after("f", &before);
    }
    fn chown_of_nothing(t) {
        t.file("f", "");
        let before = t.before("f");
        t.chown("f", None, None);
        t.after("f", &before);
    }
    fn failed_calls_change_nothing(t) {
        t.file("f", "");
        t.chmod("f", 0o644);
        let before = t.before("f");
        t.as_user(1000, |t| {
            t.chmod("f", 0);
            t.chown("f", Some(1000), None);
            t.truncate("f", 0);
            t.open("f", OFlags::WRONLY | OFlags::TRUNC, 0);
            t.unlink("f");
        });
        t.after("f", &before);
    }
    fn link_changes(t) {
        t.file("f", "");
        t.directory("d");
        let (f, d) = (t.before("f"), t.before("d"));
        t.link("f", "d/f");
        t.after("f", &f);
        t.after("d", &d);
    }
    fn unlink_changes(t) {
        t.directory("d");
        t.file("f", "");
        t.link("f", "d/f");
        let (f, d) = (t.before("f"), t.before("d"));
        t.unlink("d/f");
        t.after("f", &f);
        t.after("d", &d);
    }
    fn create_changes_the_directory(t) {
        t.directory("d");
        let before = t.before("d");
        t.file("d/f", "");
        t.after("d", &before);
    }
    fn mkdir_changes_the_directory(t) {
        t.directory("d");
        let before = t.before("d");
        t.mkdir("d/e", 0o755);
        t.after("d", &before);
    }
    fn rmdir_changes_the_directory(t) {
        t.directory("d");
        t.directory("d/e");
        let before = t.before("d");
        t.rmdir("d/e");
        t.after("d", &before);
    }
    fn symlink_changes_the_directory(t) {
        t.directory("d");
        let before = t.before("d");
        t.symlink("x", "d/s");
        t.after("d", &before);
    }
    fn mknod_changes_the_directory(t) {
        t.directory("d");
        let before = t.before("d");
        t.mkfifo("d/p", 0o600);
        t.after("d", &before);
    }
    fn a_failed_create_does_not(t) {
        t.directory("d");
        t.file("d/f", "");
        let before = t.before("d");
        t.mkdir("d/f", 0o755);
        t.unlink("d/none");
        t.rmdir("d/none");
        t.open("d/f", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0);
        t.after("d", &before);
    }
    fn opening_what_is_there_does_not(t) {
        t.directory("d");
        t.file("d/f", "");
        let before = t.before("d");
        t.open("d/f", OFlags::CREATE | OFlags::RDWR, 0);
        t.after("d", &before);
    }
    fn rename_changes(t) {
        t.directory("a");
        t.directory("b");
        t.file("a/f", "");
        let (a, b, f) = (t.before("a"), t.before("b"), t.before("a/f"));
        t.rename("a/f", "b/f");
        t.after("a", &a);
        t.after("b", &b);
        t.after("b/f", &f);
    }
    fn rename_of_a_directory_changes(t) {
        t.directory("a");
        t.directory("b");
        t.directory("a/d");
        let (a, b, d) = (t.before("a"), t.before("b"), t.before("a/d"));
        t.rename("a/d", "b/d");
        t.after("a", &a);
        t.after("b", &b);
        t.after("b/d", &d);
    }
    fn rename_over_one_with_another_name(t) {
        t.file("f", "");
        t.file("g", "");
        t.link("g", "h");
        let before = t.before("h");
        t.rename("f", "g");
        t.after("h", &before);
    }
    fn rename_to_itself_changes_nothing(t) {
        t.file("f", "");
        let before = t.before("f");
        t.rename("f", "f");
        t.after("f", &before);
    }
    fn set_xattr_changes(t) {
        t.file("f", "");
        let before = t.before("f");
        t.set_xattr("f", "user.x", "y", XattrFlags::empty());
        t.after("f", &before);
    }
    fn remove_xattr_changes(t) {
        t.file("f", "");
        t.set_xattr("f", "user.x", "y", XattrFlags::empty());
        let before = t.before("f");
        t.remove_xattr("f", "user.x");
        t.after("f", &before);
    }
    fn a_write_within_changes(t) {
        t.file("f", vec![b'x'; 9000]);
        let f = t.opened("f");
        let before = t.before("f");
        t.pwrite(&f, "y", 5000);
        t.fsync(&f);
        t.after("f", &before);
    }
    fn utimens_after_a_write_stays(t) {
        t.file("f", "x");
        let f = t.opened("f");
        t.write(&f, "y");
        t.futimens(&f, at(10, 0), at(20, 0));
        t.fsync(&f);
        t.close(f);
        t.times("f");
    }
    fn utimens_before_close_stays(t) {
        let f = t.open("f", OFlags::CREATE | OFlags::WRONLY, 0o644);
        t.write(&f, vec![b'x'; 100_000]);
        t.utimens("f", at(10, 5), at(20, 6), FOLLOW);
        t.close(f);
        t.times("f");
    }
    fn new_ones_are_of_now(t) {
        t.file("old", "");
        let before = t.before("old");
        t.file("f", "");
        t.directory("d");
        t.symlink("x", "s");
        t.mkfifo("p", 0o600);
        for name in ["f", "d", "s", "p"] {
            t.after(name, &before);
        }
    }
    fn listing_changes(t) {
        t.directory("d");
        t.file("d/f", "");
        let before = t.before("d");
        t.list("d");
        t.after("d", &before);
    }
    fn readlink_changes(t) {
        t.symlink("x", "s");
        let before = t.before("s");
        t.readlink("s");
        t.after("s", &before);
    }
}
