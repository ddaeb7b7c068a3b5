//! getdents(2).

use rustix::fs::{FileType, OFlags};

use crate::cases::case::cases;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY);

cases! {
    fn empty(t) {
        t.directory("d");
        t.list("d");
    }
    fn each_kind(t) {
        t.file("f", "");
        t.directory("d");
        t.symlink("f", "s");
        t.mkfifo("p", 0o600);
        t.mknod("k", FileType::Socket, 0o600, (0, 0));
        t.mknod("c", FileType::CharacterDevice, 0o600, (1, 3));
        t.mknod("b", FileType::BlockDevice, 0o600, (7, 99));
        t.list(".");
    }
    fn of_a_file(t) {
        t.file("f", "");
        t.list("f");
        t.list("none");
        t.symlink("f", "s");
        t.list("s");
    }
    fn through_a_file_descriptor_of_a_file(t) {
        t.file("f", "");
        let f = t.opened("f");
        t.list_open(&f);
    }
    fn a_thousand(t) {
        t.directory("d");
        for n in 0..1000 {
            t.file(format!("d/n{n}").as_str(), "");
        }
        t.list("d");
    }
    fn long_names(t) {
        t.directory("d");
        for n in 0..100 {
            t.file(format!("d/{}{n:03}", "long".repeat(60)).as_str(), "");
        }
        t.list("d");
    }
    fn from_the_beginning_again(t) {
        t.directory("d");
        let d = t.open("d", DIRECTORY, 0);
        t.list_open(&d);
        t.file("d/f", "");
        t.list_open(&d);
        t.unlink("d/f");
        t.list_open(&d);
    }
    fn after_each_change(t) {
        t.directory("d");
        for n in 0..5 {
            t.file(format!("d/{n}").as_str(), "");
            t.list("d");
        }
        t.rename("d/1", "d/9");
        t.list("d");
        t.unlink("d/3");
        t.list("d");
        t.mkdir("d/3", 0o755);
        t.list("d");
    }
    fn renamed_while_open(t) {
        t.directory("d");
        t.file("d/f", "");
        let d = t.open("d", DIRECTORY, 0);
        t.rename("d", "e");
        t.file("e/g", "");
        t.list_open(&d);
    }
    fn twice_open(t) {
        t.directory("d");
        t.file("d/f", "");
        let (a, b) = (t.open("d", DIRECTORY, 0), t.open("d", DIRECTORY, 0));
        t.list_open(&a);
        t.file("d/g", "");
        t.list_open(&b);
        t.list_open(&a);
    }
    fn reading_and_writing_it(t) {
        t.directory("d");
        let d = t.open("d", DIRECTORY, 0);
        t.read(&d, 10);
        t.write(&d, "x");
        t.pread(&d, 1, 0);
        t.ftruncate(&d, 0);
    }
    fn sync(t) {
        t.directory("d");
        t.file("d/f", "x");
        let d = t.open("d", DIRECTORY, 0);
        t.fsync(&d);
        t.fdatasync(&d);
        t.syncfs(&d);
    }
    fn removed_and_made_many_times(t) {
        t.directory("d");
        for n in 0..200 {
            t.file(format!("d/{n}").as_str(), "");
            t.unlink(format!("d/{n}").as_str());
        }
        t.list("d");
        t.rmdir("d");
    }
    fn holes_are_filled(t) {
        t.directory("d");
        for n in 0..100 {
            t.file(format!("d/name-{n}").as_str(), "");
        }
        for n in (0..100).step_by(3) {
            t.unlink(format!("d/name-{n}").as_str());
        }
        for n in 0..60 {
            t.file(format!("d/other-name-{n}").as_str(), "");
        }
        t.list("d");
    }
}
