//! Compares the ext2 store with the model on each format, and checks its images with `e2fsck`.

use std::cell::Cell;

use kumihimo_proof::compare::{Difference, Pair};
use kumihimo_proof::ext2::{FORMATS, Format, Mounted};
use kumihimo_proof::operations::Operation;
use kumihimo_proof::{clock, images, run};

/// One of this many sequences is checked by `e2fsck`. After a failure, every sequence tried during
/// shrinking is checked.
const CHECKED: u32 = 8;

fn sequences(name: &'static str, format: &Format, cases: u32) {
    run_on(name, format, cases, |mounted| mounted);
}

fn run_on(name: &'static str, format: &Format, cases: u32, how: impl Fn(Mounted) -> Mounted) {
    if !images::programs(name) {
        return;
    }
    let image = format.image();
    let (count, found) = (Cell::new(0u32), Cell::new(false));
    run::test(name, cases, 1..120, |operations| {
        count.set(count.get() + 1);
        let checked = found.get() || count.get().is_multiple_of(CHECKED);
        // Cache for 64 blocks, so that blocks are evicted, or for all blocks.
        let cache = if count.get().is_multiple_of(2) { 64 << 10 } else { 16 << 20 };
        let result = Mounted::new(image.clone(), format, cache, checked)
            .and_then(|mounted| compare(how(mounted), operations));
        found.set(found.get() || checked && result.is_err());
        result
    });
}

fn compare(mounted: Mounted, operations: &[Operation]) -> Result<(), Difference> {
    clock::reset();
    let mut pair = Pair::new(mounted)?;
    pair.run(operations)?;
    pair.run(&[Operation::Remount])?;
    pair.end()?.verify()
}

#[test]
fn blocks_of_1_kb() {
    sequences("blocks_of_1_kb", &FORMATS[0], 500);
}

#[test]
fn blocks_of_2_kb() {
    sequences("blocks_of_2_kb", &FORMATS[1], 300);
}

#[test]
fn blocks_of_4_kb() {
    sequences("blocks_of_4_kb", &FORMATS[2], 300);
}

#[test]
fn plain() {
    sequences("plain", &FORMATS[3], 300);
}

/// Volumes with almost no free space and at most 60 inodes: any operation may fail with `ENOSPC`,
/// and a failed operation changes nothing.
#[test]
fn small_volumes() {
    let arguments: [&[&str]; 3] = [
        &["-b", "1024", "-I", "128", "-N", "40", "-m", "0"],
        &["-b", "2048", "-I", "256", "-N", "24", "-m", "0"],
        &["-b", "4096", "-I", "256", "-N", "32", "-m", "0"],
    ];
    for (arguments, (name, (size, block))) in arguments.into_iter().zip([
        ("small_volumes 1 KB", (100 << 10, 1024)),
        ("small_volumes 2 KB", (200 << 10, 2048)),
        ("small_volumes 4 KB", (320 << 10, 4096)),
    ]) {
        run_on(name, &Format { name, size, block, arguments }, 200, Mounted::small);
    }
}
