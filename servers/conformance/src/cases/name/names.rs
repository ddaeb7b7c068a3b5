//! Valid and invalid names.

use rustix::fs::OFlags;

use crate::cases::case::cases;

cases! {
    fn of_255_bytes(t) {
        let name = "n".repeat(255);
        t.file(name.as_str(), "x");
        t.content(name.as_str());
        t.list(".");
        t.unlink(name.as_str());
        t.mkdir(name.as_str(), 0o755);
        t.rmdir(name.as_str());
    }
    fn of_256_bytes(t) {
        let name = "n".repeat(256);
        t.open(name.as_str(), OFlags::CREATE | OFlags::WRONLY, 0o600);
        t.mkdir(name.as_str(), 0o700);
        t.symlink("x", name.as_str());
        t.mkfifo(name.as_str(), 0o600);
        t.file("f", "");
        t.link("f", name.as_str());
        t.rename("f", name.as_str());
        t.rename(name.as_str(), "f");
        t.unlink(name.as_str());
        t.rmdir(name.as_str());
        t.stat(name.as_str());
        t.list(".");
    }
    fn of_2000_bytes(t) {
        let name = "n".repeat(2000);
        t.open(name.as_str(), OFlags::CREATE | OFlags::WRONLY, 0o600);
        t.stat(name.as_str());
        t.unlink(name.as_str());
        t.mkdir(name.as_str(), 0o700);
    }
    fn paths_of_4095_and_4096_bytes(t) {
        for length in [4095, 4096, 5000] {
            let path = "./".repeat(3000).split_off(6000 - length);
            t.stat(path.as_str());
            t.mkdir(format!("{}d", &path[1..]).as_str(), 0o700);
        }
    }
    fn not_utf8(t) {
        let name = b"\xff\xfe\x80";
        t.file(name, "x");
        t.content(name);
        t.list(".");
        t.rename(name, b"\xc3\x28");
        t.list(".");
        t.unlink(b"\xc3\x28");
    }
    fn control_characters(t) {
        let name = b"\x01\n\t\r\x1b\x7f";
        t.file(name, "x");
        t.content(name);
        t.list(".");
    }
    fn every_byte(t) {
        for byte in 1..=255u8 {
            if byte != b'/' && byte != b'.' {
                let name = [byte];
                t.file(name, "");
            }
        }
        t.list(".");
    }
    fn dots(t) {
        for name in ["...", "....", ".hidden", "..hidden", "end.", "a..b"] {
            t.file(name, name);
            t.content(name);
        }
        t.list(".");
    }
    fn case_matters(t) {
        t.file("name", "small");
        t.file("NAME", "large");
        t.content("name");
        t.content("NAME");
        t.rename("name", "Name");
        t.list(".");
    }
    fn spaces_and_stars(t) {
        for name in [" ", "  ", "*", "?", "-rf", "~", "$HOME", "a b", "\\", "'", "\""] {
            t.file(name, "");
        }
        t.list(".");
    }
    fn composed_and_decomposed_are_two(t) {
        t.file("\u{e9}", "one");
        t.file("e\u{301}", "two");
        t.content("\u{e9}");
        t.content("e\u{301}");
        t.list(".");
    }
    fn of_each_length(t) {
        for length in 1..=255usize {
            t.file("x".repeat(length).as_str(), "");
        }
        t.list(".");
        for length in (1..=255usize).rev() {
            t.unlink("x".repeat(length).as_str());
        }
        t.list(".");
    }
    fn many_slashes(t) {
        t.mkdir("d", 0o755);
        t.file("d////f", "x");
        t.content("d/f");
        t.content(".///.//d//./f");
    }
}
