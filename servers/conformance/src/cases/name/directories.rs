//! mkdir(2), rmdir(2), and the link counts of directories.

use crate::cases::case::cases;

cases! {
    fn make(t) {
        t.mkdir("d", 0o751);
        t.stat("d");
        t.stat(".");
        t.list("d");
    }
    fn make_what_is_there(t) {
        t.mkdir("d", 0o755);
        t.mkdir("d", 0o700);
        t.stat("d");
    }
    fn make_where_a_file_is(t) {
        t.file("f", "");
        t.mkdir("f", 0o700);
        t.mkdir("f/", 0o700);
    }
    fn make_where_a_link_is(t) {
        t.symlink("none", "s");
        t.mkdir("s", 0o700);
        t.mkdir("s/", 0o700);
        t.lstat("none");
    }
    fn make_with_a_slash(t) {
        t.mkdir("d/", 0o700);
        t.mkdir("e///", 0o700);
        t.list(".");
    }
    fn make_in_a_file(t) {
        t.file("f", "");
        t.mkdir("f/d", 0o700);
    }
    fn make_in_nothing(t) {
        t.mkdir("none/d", 0o700);
    }
    fn make_dot(t) {
        t.mkdir(".", 0o700);
        t.mkdir("..", 0o700);
        t.directory("d");
        t.mkdir("d/.", 0o700);
        t.mkdir("d/..", 0o700);
        t.mkdir("x/.", 0o700);
    }
    fn make_empty_name(t) {
        t.mkdir("", 0o700);
    }
    fn make_with_all_bits(t) {
        t.mkdir("d", 0o7777);
        t.stat("d");
    }
    fn make_sticky(t) {
        t.mkdir("d", 0o1777);
        t.stat("d");
    }
    fn links_count_directories(t) {
        t.mkdir("d", 0o755);
        for n in 0..5 {
            t.mkdir(format!("d/{n}").as_str(), 0o755);
        }
        t.file("d/f", "");
        t.stat("d");
        t.rmdir("d/2");
        t.stat("d");
    }
    fn links_follow_a_rename(t) {
        t.directory("a");
        t.directory("b");
        t.directory("a/x");
        t.rename("a/x", "b/x");
        t.stat("a");
        t.stat("b");
        t.stat("b/x");
    }
    fn links_where_one_replaces_another(t) {
        t.directory("a");
        t.directory("a/x");
        t.directory("y");
        t.rename("y", "a/x");
        t.stat("a");
        t.stat(".");
    }
    fn second_name(t) {
        t.directory("d");
        t.link("d", "e");
        t.list(".");
    }
    fn remove(t) {
        t.directory("d");
        t.rmdir("d");
        t.stat("d");
        t.stat(".");
    }
    fn remove_with_a_slash(t) {
        t.directory("d");
        t.rmdir("d/");
        t.list(".");
    }
    fn remove_what_is_not_empty(t) {
        t.directory("d");
        t.file("d/f", "");
        t.rmdir("d");
        t.list("d");
    }
    fn remove_with_directory_inside(t) {
        t.directory("d");
        t.directory("d/e");
        t.rmdir("d");
        t.rmdir("d/e");
        t.rmdir("d");
    }
    fn remove_dot(t) {
        t.directory("d");
        t.rmdir("d/.");
        t.rmdir("d/..");
        t.rmdir(".");
        t.rmdir("..");
    }
    fn remove_a_file(t) {
        t.file("f", "");
        t.rmdir("f");
        t.rmdir("f/");
    }
    fn remove_a_link(t) {
        t.directory("d");
        t.symlink("d", "s");
        t.rmdir("s");
        t.rmdir("s/");
        t.list(".");
    }
    fn remove_nothing(t) {
        t.rmdir("d");
        t.rmdir("d/e");
        t.rmdir("");
    }
    fn remove_twice(t) {
        t.directory("d");
        t.rmdir("d");
        t.rmdir("d");
    }
    fn in_one_that_was_removed(t) {
        t.directory("d");
        t.chdir("d");
        t.rmdir("../d");
        t.open("f", rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY, 0o600);
        t.mkdir("e", 0o700);
        t.symlink("x", "s");
        t.stat(".");
        t.list(".");
    }
    fn open_one_that_was_removed(t) {
        t.directory("d");
        let d = t.open("d", rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY, 0);
        t.rmdir("d");
        t.fstat(&d);
        t.list_open(&d);
    }
    fn made_again_under_the_same_name(t) {
        t.directory("d");
        t.chdir("d");
        t.rmdir("../d");
        t.mkdir("../d", 0o700);
        t.file("../d/f", "new");
        t.stat("f");
        t.list("../d");
    }
    fn dot_and_dot_dot(t) {
        t.directory("d");
        t.directory("d/e");
        t.same("d/.", "d");
        t.same("d/e/..", "d");
        t.same("d/e/../..", ".");
    }
    fn dot_dot_after_a_rename(t) {
        t.directory("a");
        t.directory("b");
        t.directory("a/x");
        t.chdir("a/x");
        t.same("..", "../../a");
        t.rename("../x", "../../b/x");
        t.same("..", "../../b");
    }
    fn deep(t) {
        for _ in 0..100 {
            t.mkdir("d", 0o755);
            t.chdir("d");
        }
        t.file("f", "deep");
        t.content("f");
        t.list("..");
    }
    fn many_names(t) {
        t.directory("d");
        t.chdir("d");
        for n in 0..600 {
            t.file(format!("a-name-of-some-length-{n:04}").as_str(), "");
        }
        t.list(".");
        for n in (0..600).step_by(2) {
            t.unlink(format!("a-name-of-some-length-{n:04}").as_str());
        }
        t.list(".");
        t.rmdir("../d");
    }
}
