//! Holes, allocation and copies of ranges: lseek(2) with `SEEK_DATA` and `SEEK_HOLE`, fallocate(2),
//! copy_file_range(2).

use rustix::fs::{FallocateFlags as How, OFlags, SeekFrom};

use crate::cases::case::cases;

cases! {
    fn of_an_empty_file(t) {
        t.file("f", "");
        let f = t.opened("f");
        t.seek(&f, SeekFrom::Data(0));
        t.seek(&f, SeekFrom::Hole(0));
    }
    fn of_data(t) {
        t.file("f", vec![1; 10_000]);
        let f = t.opened("f");
        t.fsync(&f);
        t.seek(&f, SeekFrom::Data(0));
        t.seek(&f, SeekFrom::Hole(0));
        t.seek(&f, SeekFrom::Data(5000));
        t.seek(&f, SeekFrom::Hole(5000));
        t.seek(&f, SeekFrom::Data(9999));
    }
    fn at_and_after_the_end(t) {
        t.file("f", vec![1; 4096]);
        let f = t.opened("f");
        for at in [4096, 4097, 1 << 40] {
            t.seek(&f, SeekFrom::Data(at));
            t.seek(&f, SeekFrom::Hole(at));
        }
    }
    fn hole_in_front(t) {
        t.file("f", "");
        let f = t.opened("f");
        t.pwrite(&f, vec![1; 4096], 1 << 20);
        t.fsync(&f);
        t.seek(&f, SeekFrom::Data(0));
        t.seek(&f, SeekFrom::Hole(0));
        t.seek(&f, SeekFrom::Hole(1 << 20));
        t.seek(&f, SeekFrom::Data(5000));
    }
    fn hole_at_the_end(t) {
        t.file("f", vec![1; 4096]);
        t.truncate("f", 1 << 20);
        let f = t.opened("f");
        t.fsync(&f);
        t.seek(&f, SeekFrom::Hole(0));
        t.seek(&f, SeekFrom::Data(4096));
        t.seek(&f, SeekFrom::Hole(1 << 19));
        t.seek(&f, SeekFrom::Data(1 << 19));
    }
    fn several_holes(t) {
        t.file("f", "");
        let f = t.opened("f");
        for n in 0..5u64 {
            t.pwrite(&f, vec![1; 4096], n * 65536);
        }
        t.fsync(&f);
        for n in 0..5u64 {
            t.seek(&f, SeekFrom::Data(n * 65536 + 1));
            t.seek(&f, SeekFrom::Hole(n * 65536));
            t.seek(&f, SeekFrom::Data(n * 65536 + 4096));
        }
    }
    fn very_far(t) {
        t.file("f", "");
        let f = t.opened("f");
        t.pwrite(&f, "x", 1 << 33);
        t.fsync(&f);
        t.seek(&f, SeekFrom::Data(0));
        t.seek(&f, SeekFrom::Hole(1 << 33));
        t.seek(&f, SeekFrom::End(0));
    }
    fn the_position_moves(t) {
        t.file("f", "0123456789");
        let f = t.opened("f");
        t.seek(&f, SeekFrom::Data(4));
        t.read(&f, 3);
        t.seek(&f, SeekFrom::Hole(0));
        t.read(&f, 3);
        t.seek(&f, SeekFrom::Data(50));
        t.seek(&f, SeekFrom::Current(0));
    }
    fn of_a_directory(t) {
        t.directory("d");
        let d = t.open("d", OFlags::RDONLY, 0);
        t.fallocate(&d, How::empty(), 0, 10);
    }
    fn reserve(t) {
        t.file("f", "x");
        let f = t.opened("f");
        t.fallocate(&f, How::empty(), 0, 20_000);
        t.stat("f");
        t.content("f");
    }
    fn reserve_beyond_the_end(t) {
        t.file("f", "x");
        let f = t.opened("f");
        t.fallocate(&f, How::KEEP_SIZE, 0, 20_000);
        t.stat("f");
        t.content("f");
        t.allocated("f");
    }
    fn reserve_wrongly(t) {
        t.file("f", "x");
        let f = t.opened("f");
        t.fallocate(&f, How::empty(), 0, 0);
        t.fallocate(&f, How::empty(), 1 << 63, 10);
        t.fallocate(&f, How::empty(), 0, 1 << 63);
        t.fallocate(&f, How::empty(), (1 << 63) - 5, 10);
        t.stat("f");
    }
    fn reserve_through_a_reader(t) {
        t.file("f", "x");
        let f = t.open("f", OFlags::RDONLY, 0);
        t.fallocate(&f, How::empty(), 0, 10);
        t.mkfifo("p", 0o600);
        let p = t.opened("p");
        t.fallocate(&p, How::empty(), 0, 10);
    }
    fn punch(t) {
        t.file("f", vec![b'x'; 65536]);
        let f = t.opened("f");
        t.fallocate(&f, How::PUNCH_HOLE | How::KEEP_SIZE, 8192, 16384);
        t.content("f");
        t.stat("f");
    }
    fn punch_part_of_a_block(t) {
        t.file("f", vec![b'x'; 10_000]);
        let f = t.opened("f");
        t.fallocate(&f, How::PUNCH_HOLE | How::KEEP_SIZE, 100, 50);
        t.fallocate(&f, How::PUNCH_HOLE | How::KEEP_SIZE, 4000, 200);
        t.content("f");
    }
    fn punch_without_keeping_the_size(t) {
        t.file("f", vec![b'x'; 10_000]);
        let f = t.opened("f");
        t.fallocate(&f, How::PUNCH_HOLE, 0, 4096);
        t.content("f");
    }
    fn punch_beyond_the_end(t) {
        t.file("f", vec![b'x'; 5000]);
        let f = t.opened("f");
        t.fallocate(&f, How::PUNCH_HOLE | How::KEEP_SIZE, 4096, 1 << 20);
        t.content("f");
        t.fallocate(&f, How::PUNCH_HOLE | How::KEEP_SIZE, 1 << 20, 4096);
        t.stat("f");
    }
    fn punch_all_gives_room_back(t) {
        t.file("f", vec![b'x'; 65536]);
        let f = t.opened("f");
        t.fsync(&f);
        t.fallocate(&f, How::PUNCH_HOLE | How::KEEP_SIZE, 0, 65536);
        t.allocated("f");
        t.stat("f");
        t.seek(&f, SeekFrom::Data(0));
    }
    fn zero(t) {
        t.file("f", vec![b'x'; 10_000]);
        let f = t.opened("f");
        t.fallocate(&f, How::ZERO_RANGE, 100, 200);
        t.content("f");
    }
    fn collapse_and_insert(t) {
        t.file("f", vec![b'x'; 65536]);
        let f = t.opened("f");
        t.fallocate(&f, How::COLLAPSE_RANGE, 0, 4096);
        t.fallocate(&f, How::INSERT_RANGE, 0, 4096);
        t.stat("f");
    }
    fn copy(t) {
        t.file("f", "0123456789");
        t.file("g", "");
        let (f, g) = (t.opened("f"), t.opened("g"));
        t.copy_range(&f, &g, 2, 5, 4);
        t.content("g");
        t.copy_range(&f, &g, 20, 0, 4);
        t.copy_range(&f, &g, 0, 0, 0);
    }
    fn copy_within(t) {
        t.file("f", "0123456789");
        let f = t.opened("f");
        t.copy_range(&f, &f, 0, 20, 5);
        t.content("f");
        t.copy_range(&f, &f, 0, 2, 5);
        t.content("f");
    }
    fn copy_much(t) {
        t.file("f", vec![b'x'; 300_000]);
        t.file("g", "");
        let (f, g) = (t.opened("f"), t.opened("g"));
        t.copy_range(&f, &g, 0, 0, 300_000);
        t.content("g");
    }
    fn copy_wrongly(t) {
        t.file("f", "x");
        t.directory("d");
        let f = t.open("f", OFlags::RDONLY, 0);
        let d = t.open("d", OFlags::RDONLY, 0);
        t.copy_range(&f, &f, 0, 0, 1);
        t.copy_range(&d, &f, 0, 0, 1);
    }
}
