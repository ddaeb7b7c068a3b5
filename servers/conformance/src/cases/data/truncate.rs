//! truncate(2) and ftruncate(2).

use rustix::fs::{FileType, OFlags};

use crate::cases::case::cases;

cases! {
    fn shorter(t) {
        t.file("f", "content");
        t.truncate("f", 3);
        t.content("f");
        t.stat("f");
    }
    fn longer(t) {
        t.file("f", "content");
        t.truncate("f", 10_000);
        t.content("f");
        t.stat("f");
    }
    fn to_nothing(t) {
        t.file("f", "content");
        t.truncate("f", 0);
        t.stat("f");
        t.allocated("f");
    }
    fn to_its_own_size(t) {
        t.file("f", "content");
        t.truncate("f", 7);
        t.content("f");
    }
    /// The truncated part reads as zeros after the file grows again.
    fn shorter_and_longer(t) {
        t.file("f", vec![b'x'; 10_000]);
        for (cut, grown) in [(5000, 9000), (4096, 8192), (1, 3), (0, 10), (4097, 5000)] {
            t.truncate("f", cut);
            t.truncate("f", grown);
            t.content("f");
            let f = t.opened("f");
            t.pwrite(&f, vec![b'y'; 10_000], 0);
        }
    }
    fn within_a_block(t) {
        t.file("f", vec![b'x'; 100]);
        t.truncate("f", 50);
        t.truncate("f", 100);
        t.content("f");
    }
    fn sparse_and_large(t) {
        t.file("f", "");
        t.truncate("f", 1 << 32);
        t.stat("f");
        t.allocated("f");
        let f = t.opened("f");
        t.pread(&f, 10, 1 << 31);
        t.pwrite(&f, "end", (1 << 32) - 3);
        t.pread(&f, 10, (1 << 32) - 5);
        t.truncate("f", (1 << 32) - 1);
        t.pread(&f, 10, (1 << 32) - 5);
        t.truncate("f", 0);
        t.allocated("f");
    }
    fn negative(t) {
        t.file("f", "x");
        t.truncate("f", -1);
        t.truncate("f", i64::MIN);
        t.stat("f");
    }
    fn beyond_all(t) {
        t.file("f", "x");
        t.truncate("f", i64::MAX);
        t.stat("f");
    }
    fn directory(t) {
        t.directory("d");
        t.truncate("d", 0);
        t.truncate("d/", 0);
    }
    fn others(t) {
        t.mkfifo("p", 0o600);
        t.mknod("s", FileType::Socket, 0o600, (0, 0));
        t.mknod("c", FileType::CharacterDevice, 0o600, (1, 3));
        for name in ["p", "s", "c", "none", "", "p/x"] {
            t.truncate(name, 0);
        }
    }
    fn open_for_reading(t) {
        t.file("f", "x");
        let f = t.open("f", OFlags::RDONLY, 0);
        t.ftruncate(&f, 0);
        t.stat("f");
    }
    fn open_file(t) {
        t.file("f", "content");
        let f = t.opened("f");
        t.ftruncate(&f, 2);
        t.fstat(&f);
        t.read(&f, 10);
        t.ftruncate(&f, 5);
        t.pread(&f, 10, 0);
    }
    fn position_stays(t) {
        t.file("f", "content");
        let f = t.opened("f");
        t.read(&f, 5);
        t.ftruncate(&f, 2);
        t.write(&f, "X");
        t.content("f");
    }
    fn by_a_reader(t) {
        t.file("f", "x");
        t.chmod("f", 0o644);
        t.as_user(1000, |t| t.truncate("f", 0));
        t.stat("f");
    }
    fn by_a_writer(t) {
        t.file("f", "x");
        t.chmod("f", 0o222);
        t.as_user(1000, |t| t.truncate("f", 0));
        t.stat("f");
    }
    fn open_file_that_may_no_longer_be_written(t) {
        t.file("f", "content");
        t.chown("f", Some(1000), None);
        t.as_user(1000, |t| {
            let f = t.opened("f");
            t.chmod("f", 0);
            t.ftruncate(&f, 3);
            t.truncate("f", 1);
            t.fstat(&f);
        });
    }
    fn gives_room_back(t) {
        t.file("f", vec![1; 500_000]);
        t.allocated("f");
        t.truncate("f", 0);
        t.allocated("f");
        let f = t.opened("f");
        t.pwrite(&f, "x", 400_000);
        t.content("f");
    }
    fn two_that_are_open(t) {
        t.file("f", "content");
        let (a, b) = (t.opened("f"), t.opened("f"));
        t.read(&a, 3);
        t.ftruncate(&b, 1);
        t.read(&a, 10);
        t.ftruncate(&b, 20);
        t.read(&a, 30);
    }
}
