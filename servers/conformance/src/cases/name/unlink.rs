//! unlink(2).

use rustix::fs::{FileType, OFlags};

use crate::cases::case::cases;

cases! {
    fn file(t) {
        t.file("f", "x");
        t.unlink("f");
        t.stat("f");
        t.list(".");
    }
    fn one_of_two_names(t) {
        t.file("f", "x");
        t.link("f", "g");
        t.unlink("f");
        t.stat("g");
        t.content("g");
    }
    fn directory(t) {
        t.directory("d");
        t.unlink("d");
        t.unlink("d/");
        t.stat("d");
    }
    fn dot(t) {
        t.unlink(".");
        t.unlink("..");
        t.directory("d");
        t.unlink("d/.");
    }
    fn link(t) {
        t.file("f", "x");
        t.symlink("f", "s");
        t.unlink("s");
        t.content("f");
        t.lstat("s");
    }
    fn link_to_directory(t) {
        t.directory("d");
        t.symlink("d", "s");
        t.unlink("s/");
        t.unlink("s");
        t.stat("d");
    }
    fn fifo_and_others(t) {
        t.mkfifo("p", 0o600);
        t.mknod("s", FileType::Socket, 0o600, (0, 0));
        t.mknod("c", FileType::CharacterDevice, 0o600, (1, 3));
        t.mknod("b", FileType::BlockDevice, 0o600, (7, 99));
        for name in ["p", "s", "c", "b"] {
            t.unlink(name);
        }
        t.list(".");
    }
    fn nothing(t) {
        t.unlink("f");
        t.unlink("d/f");
        t.unlink("");
    }
    fn twice(t) {
        t.file("f", "");
        t.unlink("f");
        t.unlink("f");
    }
    fn in_a_file(t) {
        t.file("f", "");
        t.unlink("f/g");
        t.unlink("f/");
    }
    fn made_again(t) {
        t.file("f", "old");
        t.unlink("f");
        t.file("f", "new");
        t.content("f");
        t.stat("f");
    }
    fn open_file_lives(t) {
        t.file("f", "content");
        let f = t.opened("f");
        t.unlink("f");
        t.fstat(&f);
        t.read(&f, 100);
        t.pwrite(&f, "more", 10);
        t.pread(&f, 100, 0);
        t.ftruncate(&f, 3);
        t.fstat(&f);
        t.fchmod(&f, 0o600);
        t.fchown(&f, Some(7), Some(8));
        t.fstat(&f);
        t.fsync(&f);
        t.list(".");
    }
    fn open_file_and_a_new_one(t) {
        t.file("f", "old");
        let old = t.opened("f");
        t.unlink("f");
        t.file("f", "newer");
        t.pread(&old, 10, 0);
        t.pwrite(&old, "OLD", 0);
        t.content("f");
        t.fstat(&old);
    }
    fn open_file_gets_no_new_name(t) {
        t.file("f", "");
        let f = t.opened("f");
        t.unlink("f");
        t.link_open(&f, "g");
        t.list(".");
    }
    fn open_file_with_another_name(t) {
        t.file("f", "x");
        t.link("f", "g");
        let f = t.opened("f");
        t.unlink("f");
        t.fstat(&f);
        t.link_open(&f, "h");
        t.fstat(&f);
        t.unlink("g");
        t.unlink("h");
        t.fstat(&f);
        t.pread(&f, 1, 0);
    }
    fn open_twice(t) {
        t.file("f", "x");
        let (a, b) = (t.opened("f"), t.opened("f"));
        t.unlink("f");
        t.close(a);
        t.pread(&b, 1, 0);
        t.fstat(&b);
    }
    fn directory_of_an_open_file(t) {
        t.directory("d");
        t.file("d/f", "x");
        let f = t.opened("d/f");
        t.unlink("d/f");
        t.rmdir("d");
        t.pread(&f, 1, 0);
        t.list(".");
    }
    fn fifo_in_use(t) {
        t.mkfifo("p", 0o600);
        let p = t.open("p", OFlags::RDWR, 0);
        t.unlink("p");
        t.write(&p, "x");
        t.read(&p, 1);
        t.fstat(&p);
    }
    fn large_and_open(t) {
        let f = t.open("f", OFlags::CREATE | OFlags::RDWR, 0o600);
        t.pwrite(&f, vec![7; 300_000], 0);
        t.unlink("f");
        t.pread(&f, 5, 299_998);
        t.fstat(&f);
    }
}
