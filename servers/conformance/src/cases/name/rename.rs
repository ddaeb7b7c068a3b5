//! rename(2).

use rustix::fs::{FileType, RenameFlags};

use crate::cases::case::cases;

cases! {
    fn file(t) {
        t.file("f", "x");
        t.rename("f", "g");
        t.content("g");
        t.stat("f");
        t.list(".");
    }
    fn file_over_file(t) {
        t.file("f", "one");
        t.file("g", "other");
        t.rename("f", "g");
        t.content("g");
        t.list(".");
        t.stat("g");
    }
    fn file_over_itself(t) {
        t.file("f", "x");
        t.rename("f", "f");
        t.stat("f");
    }
    /// Both names refer to the same file: rename(2) does nothing (POSIX).
    fn over_a_second_name_of_it(t) {
        t.file("f", "x");
        t.link("f", "g");
        t.rename("f", "g");
        t.list(".");
        t.stat("f");
    }
    fn file_over_directory(t) {
        t.file("f", "");
        t.directory("d");
        t.rename("f", "d");
        t.list(".");
    }
    fn directory_over_file(t) {
        t.file("f", "");
        t.directory("d");
        t.rename("d", "f");
        t.list(".");
    }
    fn directory(t) {
        t.directory("d");
        t.file("d/f", "x");
        t.rename("d", "e");
        t.content("e/f");
        t.list(".");
        t.stat("e");
    }
    fn directory_over_empty(t) {
        t.directory("d");
        t.file("d/f", "x");
        t.directory("e");
        t.rename("d", "e");
        t.list("e");
        t.list(".");
    }
    fn directory_over_full(t) {
        t.directory("d");
        t.directory("e");
        t.file("e/f", "x");
        t.rename("d", "e");
        t.list(".");
    }
    fn directory_below_itself(t) {
        t.directory("d");
        t.directory("d/e");
        t.rename("d", "d/x");
        t.rename("d", "d/e/x");
        t.rename("d", "d/e");
        t.list("d");
    }
    fn directory_over_its_parent(t) {
        t.directory("d");
        t.directory("d/e");
        t.rename("d/e", "d");
        t.list("d");
    }
    fn directory_with_slashes(t) {
        t.directory("d");
        t.rename("d/", "e/");
        t.rename("e", "g///");
        t.list(".");
    }
    fn file_with_slash(t) {
        t.file("f", "");
        t.rename("f/", "g");
        t.rename("f", "g/");
        t.list(".");
    }
    fn link(t) {
        t.file("f", "x");
        t.symlink("f", "s");
        t.rename("s", "r");
        t.readlink("r");
        t.content("r");
    }
    fn over_link(t) {
        t.file("f", "x");
        t.file("g", "y");
        t.symlink("f", "s");
        t.rename("g", "s");
        t.lstat("s");
        t.content("f");
    }
    fn link_over_file(t) {
        t.file("f", "x");
        t.symlink("none", "s");
        t.rename("s", "f");
        t.readlink("f");
    }
    fn directory_over_link_to_directory(t) {
        t.directory("d");
        t.directory("e");
        t.symlink("e", "s");
        t.rename("d", "s");
        t.rename("d", "s/");
        t.list(".");
    }
    fn link_to_directory_with_slash(t) {
        t.directory("d");
        t.symlink("d", "s");
        t.rename("s/", "x");
        t.list(".");
    }
    fn fifo_and_others(t) {
        t.mkfifo("p", 0o640);
        t.mknod("s", FileType::Socket, 0o600, (0, 0));
        t.rename("p", "q");
        t.rename("s", "q");
        t.lstat("q");
        t.list(".");
    }
    fn nothing(t) {
        t.rename("f", "g");
        t.file("g", "x");
        t.rename("f", "g");
        t.content("g");
    }
    fn into_nothing(t) {
        t.file("f", "");
        t.rename("f", "none/f");
        t.rename("none/f", "f");
        t.rename("f", "");
        t.rename("", "f");
    }
    fn through_a_file(t) {
        t.file("f", "");
        t.file("g", "");
        t.rename("f", "g/f");
        t.rename("g/f", "f");
    }
    fn dot(t) {
        t.directory("d");
        t.rename(".", "e");
        t.rename("d/.", "e");
        t.rename("d", ".");
        t.rename("d", "d/..");
        t.rename("..", "e");
    }
    fn between_directories(t) {
        t.directory("a");
        t.directory("b");
        t.file("a/f", "x");
        t.rename("a/f", "b/g");
        t.list("a");
        t.list("b");
        t.content("b/g");
    }
    fn directory_between_directories(t) {
        t.directory("a");
        t.directory("b");
        t.directory("a/d");
        t.file("a/d/f", "x");
        t.rename("a/d", "b/d");
        t.list("a");
        t.list("b");
        t.content("b/d/f");
        t.same("b/d/..", "b");
    }
    fn open_file_moves(t) {
        t.file("f", "x");
        let f = t.opened("f");
        t.rename("f", "g");
        t.write(&f, "yz");
        t.content("g");
        t.fstat(&f);
    }
    fn over_open_file(t) {
        t.file("f", "new");
        t.file("g", "old");
        let g = t.opened("g");
        t.rename("f", "g");
        t.pread(&g, 10, 0);
        t.fstat(&g);
        t.pwrite(&g, "OLD", 0);
        t.content("g");
    }
    fn over_open_directory(t) {
        t.directory("d");
        t.directory("e");
        let e = t.open("e", rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::DIRECTORY, 0);
        t.rename("d", "e");
        t.fstat(&e);
        t.list_open(&e);
    }
    fn keeping_what_is_there(t) {
        t.file("f", "x");
        t.file("g", "y");
        t.rename_with("f", "g", RenameFlags::NOREPLACE);
        t.content("g");
        t.rename_with("f", "h", RenameFlags::NOREPLACE);
        t.list(".");
    }
    fn keeping_the_same_name(t) {
        t.file("f", "x");
        t.rename_with("f", "f", RenameFlags::NOREPLACE);
        t.symlink("none", "s");
        t.rename_with("f", "s", RenameFlags::NOREPLACE);
        t.directory("d");
        t.rename_with("d", "d", RenameFlags::NOREPLACE);
    }
    fn exchanging(t) {
        t.file("f", "x");
        t.directory("d");
        t.rename_with("f", "d", RenameFlags::EXCHANGE);
        t.content("d");
        t.list(".");
    }
    fn exchanging_with_nothing(t) {
        t.file("f", "x");
        t.rename_with("f", "g", RenameFlags::EXCHANGE);
        t.list(".");
    }
    fn contradicting_flags(t) {
        t.file("f", "x");
        t.rename_with("f", "g", RenameFlags::EXCHANGE | RenameFlags::NOREPLACE);
        t.list(".");
    }
    fn longer_and_shorter_names(t) {
        t.file("f", "x");
        for length in [255, 1, 100, 17, 254, 3] {
            let to = "n".repeat(length);
            t.rename(if length == 255 { "f".to_owned() } else { "n".repeat(last(length)) }.as_str(), to.as_str());
        }
        t.list(".");
    }
    fn in_a_circle(t) {
        t.file("a", "a");
        t.file("b", "b");
        t.file("c", "c");
        t.rename("a", "x");
        t.rename("b", "a");
        t.rename("c", "b");
        t.rename("x", "c");
        for name in ["a", "b", "c"] {
            t.content(name);
        }
    }
    fn many_times(t) {
        t.file("f", "x");
        t.directory("d");
        for n in 0..50 {
            let (from, to) = if n % 2 == 0 { ("f", "d/f") } else { ("d/f", "f") };
            t.rename(from, to);
        }
        t.content("f");
        t.list("d");
    }
}

/// The previous length in `longer_and_shorter_names`.
fn last(length: usize) -> usize {
    let lengths = [255, 1, 100, 17, 254, 3];
    lengths[lengths.iter().position(|it| *it == length).unwrap_or(1) - 1]
}
