//! symlink(2), readlink(2), and following symbolic links.

use rustix::fs::OFlags;

use crate::cases::case::cases;

cases! {
    fn make(t) {
        t.symlink("target", "s");
        t.lstat("s");
        t.readlink("s");
        t.stat("s");
    }
    fn short_and_long(t) {
        for length in [1, 59, 60, 61, 255, 1000, 1023] {
            let target = "x".repeat(length);
            let name = format!("s{length}");
            t.symlink(target.as_str(), name.as_str());
            t.lstat(name.as_str());
            t.readlink(name.as_str());
        }
    }
    /// Targets up to the block size of the file system.
    fn longest(t) {
        for length in [4095, 4096] {
            let target = "x/".repeat(length).split_off(length);
            let name = format!("s{length}");
            t.symlink(target.as_str(), name.as_str());
            t.lstat(name.as_str());
        }
    }
    fn empty_target(t) {
        t.symlink("", "s");
        t.lstat("s");
    }
    fn empty_name(t) {
        t.symlink("x", "");
    }
    fn over_what_is_there(t) {
        t.file("f", "");
        t.directory("d");
        t.symlink("x", "s");
        for name in ["f", "d", "s"] {
            t.symlink("y", name);
        }
        t.readlink("s");
    }
    fn with_a_slash(t) {
        t.symlink("x", "s/");
        t.symlink("x", "none/s");
    }
    fn any_bytes(t) {
        t.symlink(b"\xff\xfe \n", "s");
        t.readlink("s");
    }
    fn readlink_of_others(t) {
        t.file("f", "");
        t.directory("d");
        t.mkfifo("p", 0o600);
        for name in ["f", "d", "p", "none", ""] {
            t.readlink(name);
        }
    }
    fn to_itself(t) {
        t.symlink("s", "s");
        t.stat("s");
        t.lstat("s");
        t.open("s", OFlags::RDONLY, 0);
        t.stat("s/x");
        t.chmod("s", 0o600);
    }
    fn in_a_circle(t) {
        t.symlink("b", "a");
        t.symlink("a", "b");
        t.stat("a");
        t.open("a", OFlags::CREATE | OFlags::RDWR, 0o600);
        t.truncate("a", 0);
        t.unlink("a");
        t.stat("b");
    }
    fn chain_of_40(t) {
        t.file("f0", "end");
        for n in 0..40 {
            t.symlink(format!("f{n}").as_str(), format!("f{}", n + 1).as_str());
        }
        t.content("f40");
        t.symlink("f40", "f41");
        t.content("f41");
    }
    fn to_directory(t) {
        t.directory("d");
        t.file("d/f", "x");
        t.symlink("d", "s");
        t.content("s/f");
        t.list("s");
        t.lstat("s/");
        t.lstat("s");
    }
    fn relative_to_its_own_place(t) {
        t.directory("d");
        t.file("f", "x");
        t.symlink("../f", "d/s");
        t.content("d/s");
        t.rename("d/s", "s");
        t.content("s");
    }
    fn dots(t) {
        t.symlink(".", "here");
        t.symlink("..", "up");
        t.same("here/.", ".");
        t.same("up/.", "..");
        t.unlink("up");
        t.unlink("here");
    }
    fn dangling(t) {
        t.symlink("none", "s");
        t.stat("s");
        t.chmod("s", 0o600);
        t.chown("s", Some(1), None);
        t.truncate("s", 0);
        t.mkdir("s", 0o700);
        t.list("s");
    }
    fn through_a_file(t) {
        t.file("f", "");
        t.symlink("f", "s");
        t.stat("s/x");
        t.stat("s/");
    }
    fn owner(t) {
        t.symlink("none", "s");
        t.lchown("s", Some(5), Some(6));
        t.lstat("s");
        t.chown("s", Some(1), None);
    }
    fn mode_is_777(t) {
        t.umask(0o077);
        t.symlink("x", "s");
        t.lstat("s");
    }
    fn truncated_through(t) {
        t.file("f", "content");
        t.symlink("f", "s");
        t.truncate("s", 3);
        t.content("f");
        t.lstat("s");
    }
    fn many(t) {
        for n in 0..200 {
            t.symlink(format!("{n}").repeat(n % 40 + 1).as_str(), format!("s{n}").as_str());
        }
        for n in (0..200).step_by(17) {
            t.readlink(format!("s{n}").as_str());
        }
        t.list(".");
    }
}
