//! flock(2) and fcntl(2) locks. The kernel implements both for every file system.

use rustix::fs::{FlockOperation as How, OFlags};

use crate::cases::case::cases;

cases! {
    fn one_has_it(t) {
        t.file("f", "");
        let (a, b) = (t.opened("f"), t.opened("f"));
        t.flock(&a, How::NonBlockingLockExclusive);
        t.flock(&b, How::NonBlockingLockExclusive);
        t.flock(&b, How::NonBlockingLockShared);
        t.flock(&a, How::Unlock);
        t.flock(&b, How::NonBlockingLockExclusive);
    }
    fn several_share(t) {
        t.file("f", "");
        let (a, b) = (t.opened("f"), t.opened("f"));
        t.flock(&a, How::NonBlockingLockShared);
        t.flock(&b, How::NonBlockingLockShared);
        t.flock(&a, How::NonBlockingLockExclusive);
        t.flock(&b, How::Unlock);
        t.flock(&a, How::NonBlockingLockExclusive);
    }
    fn close_gives_it_back(t) {
        t.file("f", "");
        let (a, b) = (t.opened("f"), t.opened("f"));
        t.flock(&a, How::NonBlockingLockExclusive);
        t.close(a);
        t.flock(&b, How::NonBlockingLockExclusive);
    }
    fn of_another_name(t) {
        t.file("f", "");
        t.link("f", "g");
        let (a, b) = (t.opened("f"), t.opened("g"));
        t.flock(&a, How::NonBlockingLockExclusive);
        t.flock(&b, How::NonBlockingLockExclusive);
    }
    fn of_a_directory(t) {
        t.directory("d");
        let (a, b) = (t.open("d", OFlags::RDONLY, 0), t.open("d", OFlags::RDONLY, 0));
        t.flock(&a, How::NonBlockingLockExclusive);
        t.flock(&b, How::NonBlockingLockExclusive);
    }
    fn of_an_unlinked_file(t) {
        t.file("f", "");
        let (a, b) = (t.opened("f"), t.opened("f"));
        t.unlink("f");
        t.flock(&a, How::NonBlockingLockExclusive);
        t.flock(&b, How::NonBlockingLockExclusive);
    }
    /// A process's own locks do not conflict with each other.
    fn of_a_process(t) {
        t.file("f", "");
        let (a, b) = (t.opened("f"), t.opened("f"));
        t.lock(&a, How::NonBlockingLockExclusive);
        t.lock(&b, How::NonBlockingLockExclusive);
        t.lock(&a, How::Unlock);
    }
    fn for_writing_through_a_reader(t) {
        t.file("f", "");
        let f = t.open("f", OFlags::RDONLY, 0);
        t.lock(&f, How::NonBlockingLockExclusive);
        t.lock(&f, How::NonBlockingLockShared);
    }
}
