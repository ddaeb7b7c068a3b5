//! link(2).

use rustix::fs::FileType;

use crate::cases::case::cases;

cases! {
    fn file(t) {
        t.file("f", "x");
        t.link("f", "g");
        t.stat("f");
        t.same("f", "g");
        t.content("g");
    }
    fn change_shows_in_both(t) {
        t.file("f", "x");
        t.link("f", "g");
        let f = t.opened("f");
        t.write(&f, "changed");
        t.chmod("g", 0o600);
        t.content("g");
        t.stat("f");
    }
    fn over_what_is_there(t) {
        t.file("f", "x");
        t.file("g", "y");
        t.directory("d");
        t.symlink("none", "s");
        for to in ["f", "g", "d", "s"] {
            t.link("f", to);
        }
        t.content("g");
    }
    fn nothing(t) {
        t.link("f", "g");
        t.link("", "g");
        t.file("f", "");
        t.link("f", "");
        t.link("f", "none/g");
    }
    fn through_a_file(t) {
        t.file("f", "");
        t.link("f/x", "g");
        t.link("f", "f/x");
    }
    fn with_slashes(t) {
        t.file("f", "");
        t.link("f/", "g");
        t.link("f", "g/");
        t.list(".");
    }
    fn directory(t) {
        t.directory("d");
        t.link("d", "e");
        t.link("d/", "e");
        t.link(".", "e");
        t.stat("d");
    }
    fn of_a_link_is_a_link(t) {
        t.file("f", "x");
        t.symlink("f", "s");
        t.link("s", "r");
        t.lstat("r");
        t.readlink("r");
        t.same("s", "r");
        t.stat("f");
    }
    fn of_a_link_followed(t) {
        t.file("f", "x");
        t.symlink("f", "s");
        t.link_followed("s", "r");
        t.lstat("r");
        t.same("f", "r");
    }
    fn of_a_dangling_link_followed(t) {
        t.symlink("none", "s");
        t.link_followed("s", "r");
        t.link("s", "r");
        t.lstat("r");
    }
    fn fifo_and_others(t) {
        t.mkfifo("p", 0o600);
        t.mknod("s", FileType::Socket, 0o600, (0, 0));
        t.mknod("c", FileType::CharacterDevice, 0o600, (1, 3));
        for name in ["p", "s", "c"] {
            t.link(name, format!("{name}{name}").as_str());
            t.lstat(name);
        }
    }
    fn many(t) {
        t.file("f", "");
        for n in 0..300 {
            t.link("f", format!("g{n}").as_str());
        }
        t.stat("f");
        for n in 0..300 {
            t.unlink(format!("g{n}").as_str());
        }
        t.stat("f");
    }
    fn across_directories(t) {
        t.directory("a");
        t.directory("b");
        t.file("a/f", "x");
        t.link("a/f", "b/g");
        t.unlink("a/f");
        t.content("b/g");
        t.rmdir("a");
    }
    fn of_an_open_file(t) {
        t.file("f", "x");
        let f = t.opened("f");
        t.link_open(&f, "g");
        t.content("g");
        t.fstat(&f);
    }
    fn after_unlink(t) {
        t.file("f", "x");
        t.link("f", "g");
        t.unlink("f");
        t.link("g", "f");
        t.content("f");
        t.stat("f");
    }
}
