//! Files in every store of the benchmark.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Size of a block and of a read.
pub const BLOCK: usize = 4096;
/// Name of a file for random reads that is larger than the caches.
pub const BIG: &str = "big";
/// Its size in bytes.
pub const BIG_BYTES: u64 = 256 << 20;
/// Name of a file for random reads that fits into the cache.
pub const CACHED: &str = "cached";
/// Its size in bytes.
pub const CACHED_BYTES: u64 = 64 << 20;
/// Directory of the small files.
pub const SMALL: &str = "small";
/// Number of small files, of one block each.
pub const SMALLS: usize = 64;
/// Directory with a subdirectory for each client to create files in.
pub const MADE: &str = "made";
/// Maximum number of clients.
pub const CLIENTS: usize = 64;
/// Directory of a C project for make(1).
pub const PROJECT: &str = "project";
/// Size of a store for all files, including those that loads write.
pub const STORE_BYTES: u64 = 640 << 20;

const PARTS: [&str; 4] = ["count", "list", "text", "words"];
const MAKEFILE: &str = "\
OBJECTS = count.o list.o text.o words.o main.o

program: $(OBJECTS)
\t$(CC) -o $@ $(OBJECTS)

%.o: %.c parts.h
\t$(CC) -O0 -c -o $@ $<
";

/// Name of a small file.
#[must_use]
pub fn small(n: usize) -> String {
    format!("f{:03}", n % SMALLS)
}

/// The number at the beginning of a block, which is the block's own number.
///
/// # Panics
/// If the block is shorter than the number.
#[must_use]
pub fn number(block: &[u8]) -> u64 {
    u64::from_ne_bytes(block[..8].try_into().expect("a block is longer"))
}

/// Creates all files in an empty directory.
///
/// # Errors
/// As the file system's operations.
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

/// Writes a file without holes, in which each block begins with its number.
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
    fn every_block_contains_its_number() {
        let path = std::env::temp_dir().join(format!("kumi-bench-tree-{}", std::process::id()));
        blocks(&path, 3 * BLOCK as u64).unwrap();
        let bytes = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(bytes.chunks(BLOCK).map(number).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
