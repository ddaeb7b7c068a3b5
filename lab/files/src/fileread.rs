//! `fileread` of the paper's first load (P1): a process that reads a file, here at random offsets
//! and bypassing all caches of the kernel.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use kumihimo_bench_kit::files::O_DIRECT;
use kumihimo_bench_kit::work::Dice;

use super::aligned::Aligned;
use super::outcome::{Outcome, Spent};
use super::tree::{BIG, BIG_BYTES, BLOCK, number};

/// Distance between two reads of the warm-up: the data that one indirect block of ext2 maps.
const APART: u64 = BLOCK as u64 * (BLOCK as u64 / 4);

/// Opens a file with O_DIRECT, so that each read is a request to the server.
pub fn open(path: &Path) -> Result<File, String> {
    OpenOptions::new()
        .read(true)
        .custom_flags(O_DIRECT)
        .open(path)
        .map_err(|e| format!("{}: {e}", path.display()))
}

/// Reads as many blocks as `buffer` can hold, from block `n` on, and checks their numbers.
pub fn block(file: &File, n: u64, buffer: &mut Aligned) -> Result<(), String> {
    file.read_exact_at(buffer.bytes(), n * BLOCK as u64).map_err(|e| format!("block {n}: {e}"))?;
    for (n, block) in (n..).zip(buffer.bytes().chunks(BLOCK)) {
        match number(block) {
            found if found == n => {}
            found => return Err(format!("block {n} contains the number {found}")),
        }
    }
    Ok(())
}

/// Reads `reads` blocks of the big file. Its indirect blocks are read into the server's cache
/// before, so that only the data is measured.
pub fn run(root: &Path, reads: u64, seed: u64, go: &mut dyn FnMut()) -> Result<Outcome, String> {
    let file = open(&root.join(BIG))?;
    let mut buffer = Aligned::new(BLOCK);
    for at in (0..BIG_BYTES).step_by(APART as usize) {
        block(&file, at / BLOCK as u64, &mut buffer)?;
    }
    let mut dice = Dice::new(seed);
    go();
    let spent = Spent::begin()?;
    for _ in 0..reads {
        block(&file, dice.below(BIG_BYTES / BLOCK as u64), &mut buffer)?;
    }
    spent.end()
}
