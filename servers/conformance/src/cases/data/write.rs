//! read(2), write(2) and related calls.

use rustix::fs::{OFlags, SeekFrom};

use crate::cases::case::cases;

cases! {
    fn beyond_the_end(t) {
        t.file("f", "abc");
        let f = t.opened("f");
        t.pwrite(&f, "x", 10);
        t.content("f");
        t.pwrite(&f, "y", 100_000);
        t.content("f");
        t.stat("f");
    }
    fn reading_beyond_the_end(t) {
        t.file("f", "abc");
        let f = t.opened("f");
        t.pread(&f, 10, 0);
        t.pread(&f, 10, 2);
        t.pread(&f, 10, 3);
        t.pread(&f, 10, 1 << 40);
    }
    fn across_blocks(t) {
        t.file("f", "");
        let f = t.opened("f");
        for (offset, length) in [(1000u64, 50usize), (1020, 10), (4090, 12), (0, 5000), (8191, 2), (12_000, 3)] {
            t.pwrite(&f, vec![b'a' + (length % 26) as u8; length], offset);
        }
        t.content("f");
    }
    fn over_what_is_there(t) {
        t.file("f", "0123456789");
        let f = t.opened("f");
        t.pwrite(&f, "ab", 3);
        t.content("f");
        t.pwrite(&f, "cd", 9);
        t.content("f");
    }
    fn position(t) {
        t.file("f", "0123456789");
        let f = t.opened("f");
        t.read(&f, 3);
        t.write(&f, "XY");
        t.read(&f, 3);
        t.pread(&f, 3, 0);
        t.pwrite(&f, "Z", 0);
        t.read(&f, 10);
        t.read(&f, 10);
        t.content("f");
    }
    fn nothing(t) {
        t.file("f", "x");
        let f = t.opened("f");
        t.write(&f, "");
        t.read(&f, 0);
        t.pwrite(&f, "", 100);
        t.stat("f");
    }
    fn large(t) {
        t.file("f", "");
        let f = t.opened("f");
        let bytes: Vec<u8> = (0..3_000_000u32).map(|n| (n / 1000) as u8).collect();
        t.pwrite(&f, &bytes, 0);
        t.content("f");
        t.pread(&f, 3, 2_999_998);
    }
    fn indirect_blocks(t) {
        t.file("f", "");
        let f = t.opened("f");
        for offset in [0u64, 11 << 10, 12 << 10, 48 << 10, 268 << 10, 4 << 20, 65 << 20, 1 << 30] {
            t.pwrite(&f, format!("at {offset}"), offset);
        }
        for offset in [0u64, 11 << 10, 12 << 10, 48 << 10, 268 << 10, 4 << 20, 65 << 20, 1 << 30] {
            t.pread(&f, 13, offset);
        }
        t.stat("f");
        t.truncate("f", 48 << 10);
        t.stat("f");
        t.pread(&f, 5, 12 << 10);
    }
    fn over_two_gigabytes(t) {
        t.file("f", "");
        let f = t.opened("f");
        t.pwrite(&f, "two", (1 << 31) - 1);
        t.pwrite(&f, "four", (1 << 32) - 2);
        t.pread(&f, 5, (1 << 31) - 2);
        t.pread(&f, 5, (1 << 32) - 3);
        t.stat("f");
    }
    fn beyond_the_largest_file(t) {
        t.file("f", "x");
        let f = t.opened("f");
        t.pwrite(&f, "x", 1 << 62);
        t.pwrite(&f, "x", (1 << 63) - 1);
        t.ftruncate(&f, (1 << 63) - 1);
        t.stat("f");
    }
    fn negative_places(t) {
        t.file("f", "x");
        let f = t.opened("f");
        t.pread(&f, 1, 1 << 63);
        t.pwrite(&f, "x", u64::MAX);
        t.ftruncate(&f, 1 << 63);
    }
    fn seen_by_others_at_once(t) {
        t.file("f", "");
        let (a, b) = (t.opened("f"), t.open("f", OFlags::RDONLY, 0));
        for text in ["one", "two", "three"] {
            t.write(&a, text);
            t.read(&b, 10);
            t.stat("f");
        }
    }
    fn seen_through_another_name(t) {
        t.file("f", "");
        t.link("f", "g");
        let (a, b) = (t.opened("f"), t.opened("g"));
        t.write(&a, "through");
        t.pread(&b, 10, 0);
        t.pwrite(&b, "THROUGH", 0);
        t.pread(&a, 10, 0);
    }
    fn closed_and_opened(t) {
        for n in 0..10 {
            let f = t.open("f", OFlags::CREATE | OFlags::RDWR, 0o600);
            t.pwrite(&f, format!("{n}"), n);
            t.close(f);
        }
        t.content("f");
    }
    fn synced(t) {
        t.file("f", "");
        let f = t.opened("f");
        t.write(&f, "one");
        t.fsync(&f);
        t.write(&f, "two");
        t.fdatasync(&f);
        t.write(&f, "three");
        t.syncfs(&f);
        t.content("f");
    }
    fn sync_of_a_reader(t) {
        t.file("f", "x");
        let f = t.open("f", OFlags::RDONLY, 0);
        t.fsync(&f);
        t.fdatasync(&f);
    }
    fn into_a_hole(t) {
        t.truncate("f", 0);
        t.file("f", "");
        t.truncate("f", 1 << 20);
        let f = t.opened("f");
        t.pwrite(&f, "middle", 500_000);
        t.content("f");
    }
    fn small_pieces(t) {
        t.file("f", "");
        let f = t.opened("f");
        for n in 0..500 {
            t.write(&f, format!("{n},"));
        }
        t.seek(&f, SeekFrom::Start(0));
        t.content("f");
    }
    fn backwards(t) {
        t.file("f", "");
        let f = t.opened("f");
        for n in (0..60u64).rev() {
            t.pwrite(&f, vec![b'0' + (n % 10) as u8; 700], n * 700);
        }
        t.content("f");
    }
    fn read_then_write_then_read(t) {
        t.file("f", vec![b'a'; 20_000]);
        let f = t.opened("f");
        t.pread(&f, 3, 9_999);
        t.pwrite(&f, "BBB", 9_999);
        t.pread(&f, 5, 9_998);
        t.truncate("f", 10_000);
        t.pread(&f, 5, 9_998);
        t.truncate("f", 20_000);
        t.pread(&f, 5, 9_998);
    }
    fn by_two_users(t) {
        t.file("f", "");
        t.chmod("f", 0o666);
        t.as_user(1000, |t| {
            let f = t.opened("f");
            t.write(&f, "first");
        });
        t.as_user(1001, |t| {
            let f = t.opened("f");
            t.read(&f, 10);
            t.pwrite(&f, "F", 0);
        });
        t.content("f");
    }
}
