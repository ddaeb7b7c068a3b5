//! The files that every store of the benchmark has.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Bytes of a block, and of a request to read.
pub const BLOCK: usize = 4096;
/// Read at random, and larger than the caches of the loads that want a disk.
pub const BIG: &str = "big";
/// Its bytes.
pub const BIG_BYTES: u64 = 256 << 20;
/// Read at random, and smaller than the cache.
pub const CACHED: &str = "cached";
/// Its bytes.
pub const CACHED_BYTES: u64 = 64 << 20;
/// Where the small files are.
pub const SMALL: &str = "small";
/// Small files, of a block each.
pub const SMALLS: usize = 64;
/// Where each client has a directory of its own to create files in.
pub const MADE: &str = "made";
/// So many.
pub const CLIENTS: usize = 64;
/// A C project for make.
pub const PROJECT: &str = "project";
/// Room for all of it, and for what is written beside it.
pub const STORE_BYTES: u64 = 640 << 20;

const PARTS: [&str; 4] = ["count", "list", "text", "words"];
const MAKEFILE: &str = "\
OBJECTS = count.o list.o text.o words.o main.o

program: $(OBJECTS)
\t$(CC) -o $@ $(OBJECTS)

%.o: %.c parts.h
\t$(CC) -O0 -c -o $@ $<
";

/// The name of a small file.
#[must_use]
pub fn small(n: usize) -> String {
    format!("f{:03}", n % SMALLS)
}

/// The number that a block of a file begins with: its own.
///
/// # Panics
/// If it is shorter than that number.
#[must_use]
pub fn number(block: &[u8]) -> u64 {
    u64::from_ne_bytes(block[..8].try_into().expect("a block is longer"))
}

/// Fills an empty directory.
///
/// # Errors
/// Of the file system.
pub fn fill(directory: &Path) -> io::Result<()> {
    blocks(&directory.join(BIG), BIG_BYTES)?;
    blocks(&directory.join(CACHED), CACHED_BYTES)?;
    fs::create_dir(directory.join(SMALL))?;
    for n in 0..SMALLS {
        blocks(&directory.join(SMALL).join(small(n)), BLOCK as u64)?;
    }
    for client in 0..CLIENTS {
        fs::create_dir_all(directory.join(MADE).join(client.to_string()))?;
    }
    project(&directory.join(PROJECT))
}

/// A file whose blocks begin with their numbers, none of them a hole.
fn blocks(path: &Path, bytes: u64) -> io::Result<()> {
    let mut file = io::BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut block = [0xa5; BLOCK];
    for number in 0..bytes / BLOCK as u64 {
        block[..8].copy_from_slice(&number.to_ne_bytes());
        file.write_all(&block)?;
    }
    file.flush()
}

fn project(directory: &Path) -> io::Result<()> {
    fs::create_dir(directory)?;
    let declared: String = PARTS.iter().map(|part| format!("int {part}(int);\n")).collect();
    fs::write(directory.join("parts.h"), declared)?;
    for part in PARTS {
        let text = format!(
            "#include \"parts.h\"\nint {part}(int n) {{ return n < 2 ? n : {part}(n - 1) + 1; }}\n"
        );
        fs::write(directory.join(format!("{part}.c")), text)?;
    }
    let sum: Vec<String> = PARTS.iter().map(|part| format!("{part}(1)")).collect();
    fs::write(
        directory.join("main.c"),
        format!(
            "#include \"parts.h\"\nint main(void) {{ return {} - {}; }}\n",
            sum.join(" + "),
            PARTS.len()
        ),
    )?;
    fs::write(directory.join("Makefile"), MAKEFILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_has_its_number() {
        let path = std::env::temp_dir().join(format!("kumi-bench-tree-{}", std::process::id()));
        blocks(&path, 3 * BLOCK as u64).unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(bytes.chunks(BLOCK).map(number).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
