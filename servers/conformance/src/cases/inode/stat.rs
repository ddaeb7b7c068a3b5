//! stat(2) and related calls.

use rustix::fs::{FileType, OFlags, SeekFrom};

use crate::cases::case::cases;

cases! {
    fn each_kind(t) {
        t.file("f", "12345");
        t.directory("d");
        t.symlink("f", "s");
        t.mkfifo("p", 0o600);
        t.mknod("k", FileType::Socket, 0o600, (0, 0));
        t.mknod("c", FileType::CharacterDevice, 0o600, (1, 3));
        for name in ["f", "d", "s", "p", "k", "c"] {
            t.stat(name);
            t.lstat(name);
        }
    }
    fn size_follows_writes(t) {
        let f = t.open("f", OFlags::CREATE | OFlags::RDWR, 0o600);
        for n in [1, 10, 1000, 4096, 100_000] {
            t.write(&f, vec![b'x'; n]);
            t.fstat(&f);
            t.stat("f");
        }
    }
    fn size_of_a_sparse_file(t) {
        let f = t.open("f", OFlags::CREATE | OFlags::RDWR, 0o600);
        t.pwrite(&f, "x", 3 << 30);
        t.stat("f");
    }
    fn empty_file_has_no_blocks(t) {
        t.file("f", "");
        t.allocated("f");
        t.symlink("short", "s");
        t.allocated("s");
        t.mkfifo("p", 0o600);
        t.allocated("p");
        t.directory("d");
        t.allocated("d");
    }
    fn blocks_follow_writes(t) {
        t.file("f", "x");
        let f = t.opened("f");
        t.fsync(&f);
        t.allocated("f");
        t.truncate("f", 0);
        t.allocated("f");
    }
    fn one_inode_whatever_the_way(t) {
        t.directory("d");
        t.file("d/f", "");
        t.link("d/f", "g");
        t.same("d/f", "g");
        t.same("d/../g", "./d/./f");
        t.file("h", "");
        t.same("g", "h");
    }
    fn inode_stays_after_a_rename(t) {
        t.file("f", "");
        t.link("f", "keep");
        t.rename("f", "g");
        t.same("g", "keep");
        t.directory("d");
        t.rename("d", "e");
        t.rename("g", "e/g");
        t.same("e/g", "keep");
    }
    fn empty_path(t) {
        t.stat("");
        t.lstat("");
    }
    fn slash_after_a_file(t) {
        t.file("f", "");
        t.stat("f/");
        t.stat("f/.");
        t.stat("f/..");
        t.directory("d");
        t.stat("d/");
        t.stat("d/.");
        t.stat("d//");
    }
    fn open_file(t) {
        t.file("f", "x");
        let f = t.opened("f");
        t.chmod("f", 0o604);
        t.fstat(&f);
        t.rename("f", "g");
        t.fstat(&f);
        t.unlink("g");
        t.fstat(&f);
    }
    fn negative_answers_do_not_last(t) {
        t.stat("f");
        t.file("f", "");
        t.stat("f");
        t.unlink("f");
        t.stat("f");
        t.mkdir("f", 0o755);
        t.stat("f");
        t.rmdir("f");
        t.symlink("x", "f");
        t.lstat("f");
        t.stat("f");
    }
    fn file_system(t) {
        t.statvfs(".");
        t.file("f", "");
        t.statvfs("f");
        t.statvfs("none");
    }
    fn seek(t) {
        t.file("f", "content");
        let f = t.opened("f");
        t.seek(&f, SeekFrom::End(0));
        t.seek(&f, SeekFrom::End(-3));
        t.read(&f, 10);
        t.seek(&f, SeekFrom::Current(-20));
        t.seek(&f, SeekFrom::End(-8));
        t.seek(&f, SeekFrom::Start(100));
        t.read(&f, 10);
        t.write(&f, "X");
        t.stat("f");
    }
    fn seek_too_far(t) {
        t.file("f", "");
        let f = t.opened("f");
        t.seek(&f, SeekFrom::Start(1 << 62));
        t.seek(&f, SeekFrom::Current(i64::MAX));
        t.seek(&f, SeekFrom::Start(0));
        t.read(&f, 1);
    }
}
