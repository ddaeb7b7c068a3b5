//! access(2).

use rustix::fs::Access;

use crate::cases::case::cases;

cases! {
    fn of_what_is_there(t) {
        t.file("f", "");
        for how in [Access::EXISTS, Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK] {
            t.access("f", how);
        }
    }
    fn of_nothing(t) {
        for how in [Access::EXISTS, Access::READ_OK] {
            t.access("f", how);
            t.access("", how);
            t.access("f/x", how);
        }
        t.file("f", "");
        t.access("f/x", Access::EXISTS);
    }
    fn of_a_dangling_link(t) {
        t.symlink("none", "s");
        t.access("s", Access::EXISTS);
    }
    fn of_a_directory(t) {
        t.directory("d");
        t.chmod("d", 0);
        for how in [Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK] {
            t.access("d", how);
        }
        t.as_user(1000, |t| {
            for how in [Access::EXISTS, Access::READ_OK, Access::WRITE_OK, Access::EXEC_OK] {
                t.access("d", how);
            }
        });
    }
    fn root_executes_if_anybody_may(t) {
        t.file("f", "");
        for bits in [0, 0o666, 0o100, 0o010, 0o001] {
            t.chmod("f", bits);
            t.access("f", Access::EXEC_OK);
        }
    }
    fn by_owner_group_and_others(t) {
        t.file("f", "");
        t.chown("f", Some(1000), Some(2000));
        for bits in [0o400, 0o040, 0o004, 0o200, 0o020, 0o002] {
            t.chmod("f", bits);
            t.as_user(1000, |t| {
                t.access("f", Access::READ_OK);
                t.access("f", Access::WRITE_OK);
            });
            t.as_user(2000, |t| {
                t.access("f", Access::READ_OK);
                t.access("f", Access::WRITE_OK);
            });
            t.as_user(3000, |t| {
                t.access("f", Access::READ_OK);
                t.access("f", Access::READ_OK | Access::WRITE_OK);
            });
        }
    }
    fn follows_a_change(t) {
        t.file("f", "");
        t.chmod("f", 0o600);
        t.as_user(1000, |t| t.access("f", Access::READ_OK));
        t.chmod("f", 0o644);
        t.as_user(1000, |t| t.access("f", Access::READ_OK));
        t.chmod("f", 0o600);
        t.as_user(1000, |t| t.access("f", Access::READ_OK));
        t.chown("f", Some(1000), None);
        t.as_user(1000, |t| t.access("f", Access::READ_OK));
    }
    fn of_a_fifo(t) {
        t.mkfifo("p", 0o444);
        t.as_user(1000, |t| {
            t.access("p", Access::READ_OK);
            t.access("p", Access::WRITE_OK);
        });
    }
}
