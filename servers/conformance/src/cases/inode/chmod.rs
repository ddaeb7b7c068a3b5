//! chmod(2).

use rustix::fs::FileType;

use crate::cases::case::cases;

cases! {
    fn every_bit(t) {
        t.file("f", "");
        for bit in 0..12 {
            t.chmod("f", 1 << bit);
            t.stat("f");
        }
        t.chmod("f", 0o7777);
        t.stat("f");
        t.chmod("f", 0);
        t.stat("f");
    }
    fn directory(t) {
        t.directory("d");
        for bits in [0, 0o777, 0o1777, 0o2755, 0o4755] {
            t.chmod("d", bits);
            t.stat("d");
        }
    }
    fn open_file(t) {
        t.file("f", "x");
        let f = t.opened("f");
        t.fchmod(&f, 0o400);
        t.stat("f");
        t.write(&f, "still");
        t.content("f");
    }
    fn through_a_link(t) {
        t.file("f", "");
        t.symlink("f", "s");
        t.chmod("s", 0o600);
        t.stat("f");
        t.lstat("s");
    }
    fn fifo_and_others(t) {
        t.mkfifo("p", 0);
        t.mknod("s", FileType::Socket, 0, (0, 0));
        t.mknod("c", FileType::CharacterDevice, 0, (1, 3));
        for name in ["p", "s", "c"] {
            t.chmod(name, 0o751);
            t.lstat(name);
        }
    }
    fn nothing(t) {
        t.chmod("f", 0o600);
        t.chmod("", 0o600);
        t.chmod("f/x", 0o600);
        t.file("f", "");
        t.chmod("f/x", 0o600);
        t.chmod("f/", 0o600);
    }
    fn by_the_owner(t) {
        t.file("f", "");
        t.chown("f", Some(1000), Some(1000));
        t.as_user(1000, |t| t.chmod("f", 0o755));
        t.stat("f");
    }
    fn by_another(t) {
        t.file("f", "");
        t.as_user(1000, |t| t.chmod("f", 0o777));
        t.stat("f");
    }
    fn by_a_member_of_the_group(t) {
        t.file("f", "");
        t.chown("f", Some(1), Some(1000));
        t.chmod("f", 0o660);
        t.as_user(1000, |t| t.chmod("f", 0o666));
        t.stat("f");
    }
    /// The kernel clears the set-group-ID bit if the caller is not a member of the file's group.
    fn set_group_id_of_anothers_group(t) {
        t.file("f", "");
        t.chown("f", Some(1000), Some(2000));
        t.as_user(1000, |t| t.chmod("f", 0o2755));
        t.stat("f");
    }
    fn set_group_id_of_own_group(t) {
        t.file("f", "");
        t.chown("f", Some(1000), Some(2000));
        t.as_member(1000, &[1000, 2000], |t| t.chmod("f", 0o2755));
        t.stat("f");
    }
    fn set_group_id_on_a_directory_of_anothers_group(t) {
        t.directory("d");
        t.chown("d", Some(1000), Some(2000));
        t.as_user(1000, |t| t.chmod("d", 0o2755));
        t.stat("d");
    }
    fn sticky_on_a_file_by_its_owner(t) {
        t.file("f", "");
        t.chown("f", Some(1000), Some(1000));
        t.as_user(1000, |t| t.chmod("f", 0o1644));
        t.stat("f");
    }
    fn closes_a_directory(t) {
        t.directory("d");
        t.file("d/f", "x");
        t.chown("d", Some(1000), None);
        t.as_user(1000, |t| {
            t.chmod("d", 0o600);
            t.stat("d/f");
            t.list("d");
            t.chmod("d", 0o100);
            t.stat("d/f");
            t.list("d");
            t.chmod("d", 0o300);
            t.unlink("d/f");
        });
    }
}
