//! mknod(2): FIFOs, sockets, devices, files.

use rustix::fs::FileType;

use crate::cases::case::cases;

cases! {
    fn fifo(t) {
        t.mkfifo("p", 0o640);
        t.lstat("p");
        t.list(".");
    }
    fn socket(t) {
        t.mknod("s", FileType::Socket, 0o604, (0, 0));
        t.lstat("s");
        t.list(".");
    }
    fn character_device(t) {
        t.mknod("c", FileType::CharacterDevice, 0o600, (1, 5));
        t.lstat("c");
    }
    fn block_device(t) {
        t.mknod("b", FileType::BlockDevice, 0o660, (7, 200));
        t.lstat("b");
        t.list(".");
    }
    /// ext2 has two encodings of device numbers.
    fn device_numbers(t) {
        for (n, device) in
            [(0, 0), (255, 255), (256, 0), (0, 256), (4095, 1_048_575), (1, 65536)].into_iter().enumerate()
        {
            let name = format!("c{n}");
            t.mknod(name.as_str(), FileType::CharacterDevice, 0o600, device);
            t.lstat(name.as_str());
        }
    }
    fn file(t) {
        t.mknod("f", FileType::RegularFile, 0o644, (0, 0));
        t.lstat("f");
        let f = t.opened("f");
        t.write(&f, "x");
        t.content("f");
    }
    fn directory(t) {
        t.mknod("d", FileType::Directory, 0o755, (0, 0));
        t.lstat("d");
    }
    fn link(t) {
        t.mknod("s", FileType::Symlink, 0o755, (0, 0));
        t.lstat("s");
    }
    fn over_what_is_there(t) {
        t.file("f", "");
        t.symlink("none", "s");
        t.directory("d");
        for name in ["f", "s", "d"] {
            t.mkfifo(name, 0o600);
            t.mknod(name, FileType::CharacterDevice, 0o600, (1, 3));
        }
    }
    fn nowhere(t) {
        t.mkfifo("none/p", 0o600);
        t.mkfifo("", 0o600);
        t.file("f", "");
        t.mkfifo("f/p", 0o600);
        t.mkfifo("p/", 0o600);
    }
    fn all_bits(t) {
        t.mkfifo("p", 0o7777);
        t.lstat("p");
        t.mknod("s", FileType::Socket, 0o7777, (0, 0));
        t.lstat("s");
    }
    fn fifo_has_no_size(t) {
        t.mkfifo("p", 0o600);
        t.truncate("p", 10);
        t.chmod("p", 0o644);
        t.chown("p", Some(3), Some(4));
        t.lstat("p");
    }
    fn device_is_not_truncated(t) {
        t.mknod("c", FileType::CharacterDevice, 0o600, (1, 3));
        t.truncate("c", 10);
        t.lstat("c");
    }
    fn device_by_user(t) {
        t.as_user(65534, |t| {
            t.mknod("c", FileType::CharacterDevice, 0o600, (1, 3));
            t.mkfifo("p", 0o600);
            t.mknod("s", FileType::Socket, 0o600, (0, 0));
        });
        t.list(".");
        t.lstat("p");
    }
    fn two_names_of_a_fifo_are_one_pipe(t) {
        t.mkfifo("p", 0o600);
        t.link("p", "q");
        let p = t.opened("p");
        let q = t.opened("q");
        t.write(&p, "through");
        t.read(&q, 10);
    }
}
