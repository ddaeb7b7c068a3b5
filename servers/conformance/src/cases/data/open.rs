//! open(2).

use rustix::fs::OFlags;

use crate::cases::case::cases;

cases! {
    fn make_a_file(t) {
        t.open("f", OFlags::CREATE | OFlags::WRONLY, 0o640);
        t.stat("f");
        t.content("f");
    }
    fn make_it_twice(t) {
        t.open("f", OFlags::CREATE | OFlags::WRONLY, 0o640);
        t.open("f", OFlags::CREATE | OFlags::RDWR, 0o600);
        t.stat("f");
    }
    fn make_it_exclusively(t) {
        t.open("f", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0o600);
        t.stat("f");
    }
    fn exclusively_what_is_there(t) {
        t.file("f", "x");
        t.open("f", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0o600);
        t.content("f");
    }
    fn exclusively_a_directory(t) {
        t.directory("d");
        t.open("d", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0o600);
    }
    fn exclusively_a_link(t) {
        t.file("f", "x");
        t.symlink("f", "s");
        t.open("s", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0o600);
    }
    fn exclusively_a_dangling_link(t) {
        t.symlink("none", "s");
        t.open("s", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0o600);
        t.lstat("none");
    }
    fn make_through_a_dangling_link(t) {
        t.symlink("target", "s");
        t.open("s", OFlags::CREATE | OFlags::RDWR, 0o600);
        t.lstat("target");
        t.lstat("s");
    }
    fn exclusively_a_fifo(t) {
        t.mkfifo("p", 0o600);
        t.open("p", OFlags::CREATE | OFlags::EXCL | OFlags::RDWR, 0o600);
    }
    fn what_is_not_there(t) {
        t.open("f", OFlags::RDONLY, 0);
        t.open("f", OFlags::RDWR, 0);
    }
    fn truncating(t) {
        t.file("f", "content");
        t.open("f", OFlags::WRONLY | OFlags::TRUNC, 0);
        t.stat("f");
    }
    fn truncating_and_making(t) {
        t.file("f", "content");
        t.open("f", OFlags::CREATE | OFlags::RDWR | OFlags::TRUNC, 0o777);
        t.stat("f");
    }
    fn truncating_what_is_not_there(t) {
        t.open("f", OFlags::WRONLY | OFlags::TRUNC, 0);
    }
    fn truncating_while_open(t) {
        t.file("f", "content");
        let f = t.opened("f");
        t.open("f", OFlags::WRONLY | OFlags::TRUNC, 0);
        t.read(&f, 100);
        t.fstat(&f);
    }
    fn appending(t) {
        t.file("f", "abc");
        let f = t.open("f", OFlags::WRONLY | OFlags::APPEND, 0);
        t.write(&f, "de");
        t.seek(&f, rustix::fs::SeekFrom::Current(0));
        t.seek(&f, rustix::fs::SeekFrom::Start(1));
        t.write(&f, "fg");
        t.content("f");
    }
    fn two_that_append(t) {
        let a = t.open("f", OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND, 0o600);
        let b = t.open("f", OFlags::WRONLY | OFlags::APPEND, 0);
        for (n, text) in ["one", "two", "three", "four"].into_iter().enumerate() {
            t.write(if n % 2 == 0 { &a } else { &b }, text);
        }
        t.content("f");
    }
    /// Linux ignores the offset of pwrite(2) on a file opened with `O_APPEND`: see BUGS in
    /// pwrite(2).
    fn pwrite_while_appending(t) {
        t.file("f", "abc");
        let f = t.open("f", OFlags::WRONLY | OFlags::APPEND, 0);
        t.pwrite(&f, "X", 0);
        t.content("f");
    }
    fn appending_after_truncation(t) {
        let f = t.open("f", OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND, 0o600);
        t.write(&f, "abcdef");
        t.truncate("f", 2);
        t.write(&f, "X");
        t.content("f");
    }
    fn directory_for_reading(t) {
        t.directory("d");
        t.open("d", OFlags::RDONLY, 0);
        t.open("d", OFlags::RDONLY | OFlags::DIRECTORY, 0);
    }
    fn directory_for_writing(t) {
        t.directory("d");
        t.open("d", OFlags::WRONLY, 0);
        t.open("d", OFlags::RDWR, 0);
        t.open("d", OFlags::RDWR | OFlags::DIRECTORY, 0);
    }
    fn directory_truncating(t) {
        t.directory("d");
        t.open("d", OFlags::RDONLY | OFlags::TRUNC, 0);
    }
    fn directory_making(t) {
        t.directory("d");
        t.open("d", OFlags::CREATE, 0o600);
        t.open("d", OFlags::CREATE | OFlags::DIRECTORY, 0o600);
    }
    fn file_as_directory(t) {
        t.file("f", "");
        t.open("f", OFlags::RDONLY | OFlags::DIRECTORY, 0);
    }
    fn file_with_a_slash(t) {
        t.file("f", "");
        t.open("f/", OFlags::RDONLY, 0);
        t.open("g/", OFlags::CREATE | OFlags::WRONLY, 0o600);
        t.list(".");
    }
    fn link_not_followed(t) {
        t.file("f", "");
        t.symlink("f", "s");
        t.open("s", OFlags::RDONLY | OFlags::NOFOLLOW, 0);
        t.open("f", OFlags::RDONLY | OFlags::NOFOLLOW, 0);
    }
    fn link_to_directory_not_followed(t) {
        t.directory("d");
        t.symlink("d", "s");
        t.open("s", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW, 0);
        t.open("s/", OFlags::RDONLY | OFlags::NOFOLLOW, 0);
    }
    fn link_followed_to_directory(t) {
        t.directory("d");
        t.symlink("d", "s");
        t.open("s", OFlags::RDONLY | OFlags::DIRECTORY, 0);
    }
    fn path_only(t) {
        t.file("f", "x");
        let f = t.open("f", OFlags::PATH, 0);
        t.fstat(&f);
        t.read(&f, 1);
        t.fchmod(&f, 0o600);
    }
    fn path_of_a_link(t) {
        t.symlink("f", "s");
        let s = t.open("s", OFlags::PATH | OFlags::NOFOLLOW, 0);
        t.fstat(&s);
    }
    fn reading_through_writer(t) {
        t.file("f", "x");
        let f = t.open("f", OFlags::WRONLY, 0);
        t.read(&f, 1);
    }
    fn writing_through_reader(t) {
        t.file("f", "x");
        let f = t.open("f", OFlags::RDONLY, 0);
        t.write(&f, "y");
        t.ftruncate(&f, 0);
        t.content("f");
    }
    fn mode_of_a_file_that_is_there(t) {
        t.file("f", "");
        t.open("f", OFlags::CREATE | OFlags::RDONLY, 0o7777);
        t.stat("f");
    }
    fn mode_with_all_bits(t) {
        t.open("f", OFlags::CREATE | OFlags::RDWR, 0o7777);
        t.stat("f");
    }
    fn mode_under_umask(t) {
        t.umask(0o027);
        t.open("f", OFlags::CREATE | OFlags::RDWR, 0o777);
        t.stat("f");
        t.mkdir("d", 0o777);
        t.stat("d");
        t.mkfifo("p", 0o666);
        t.stat("p");
    }
    /// The descriptor of a newly created file is writable whatever the mode of the file is.
    fn made_without_permissions(t) {
        let f = t.open("f", OFlags::CREATE | OFlags::RDWR, 0);
        t.write(&f, "x");
        t.stat("f");
        t.content("f");
    }
    fn fifo_without_reader(t) {
        t.mkfifo("p", 0o600);
        t.open("p", OFlags::WRONLY | OFlags::NONBLOCK, 0);
        t.open("p", OFlags::RDONLY | OFlags::NONBLOCK, 0);
    }
    fn fifo_both_ways(t) {
        t.mkfifo("p", 0o600);
        let p = t.open("p", OFlags::RDWR, 0);
        t.write(&p, "through");
        t.read(&p, 100);
        t.seek(&p, rustix::fs::SeekFrom::Start(0));
        t.stat("p");
    }
    fn socket(t) {
        t.mknod("s", rustix::fs::FileType::Socket, 0o600, (0, 0));
        t.open("s", OFlags::RDWR, 0);
    }
    fn device(t) {
        t.mknod("n", rustix::fs::FileType::CharacterDevice, 0o666, (1, 3));
        let n = t.open("n", OFlags::RDWR, 0);
        t.write(&n, "gone");
        t.read(&n, 5);
    }
    fn no_such_device(t) {
        t.mknod("n", rustix::fs::FileType::CharacterDevice, 0o666, (240, 7));
        t.open("n", OFlags::RDWR, 0);
    }
    fn nameless(t) {
        let f = t.open(".", OFlags::TMPFILE | OFlags::RDWR, 0o600);
        t.write(&f, "nameless");
        t.fstat(&f);
        t.list(".");
    }
    fn nameless_gets_a_name(t) {
        let f = t.open(".", OFlags::TMPFILE | OFlags::RDWR, 0o600);
        t.write(&f, "named");
        t.link_open(&f, "named");
        t.content("named");
    }
    fn synchronous(t) {
        let f = t.open("f", OFlags::CREATE | OFlags::WRONLY | OFlags::SYNC, 0o600);
        t.write(&f, "safe");
        let g = t.open("f", OFlags::WRONLY | OFlags::DSYNC, 0);
        t.write(&g, "S");
        t.content("f");
    }
    fn unaligned_direct(t) {
        t.file("f", "x");
        let f = t.open("f", OFlags::RDONLY | OFlags::DIRECT, 0);
        t.pread(&f, 1, 4096);
    }
    fn not_updating_atime(t) {
        t.file("f", "x");
        let f = t.open("f", OFlags::RDONLY | OFlags::NOATIME, 0);
        t.read(&f, 1);
    }
    fn a_file_many_times(t) {
        t.file("f", "x");
        let all: Vec<_> = (0..50).map(|_| t.opened("f")).collect();
        t.pwrite(&all[0], "y", 0);
        t.pread(&all[49], 1, 0);
        t.unlink("f");
        t.fstat(&all[25]);
    }
}
