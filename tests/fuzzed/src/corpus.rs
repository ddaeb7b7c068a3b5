//! Corpora: the inputs of a target in one file, each behind its length (32 bits, little-endian).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The file with a target's corpus.
#[must_use]
pub fn path(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(format!("{target}.pack"))
}

/// Packs inputs.
///
/// # Panics
/// If an input has 4 GiB.
#[must_use]
pub fn pack(inputs: &[Vec<u8>]) -> Vec<u8> {
    let mut packed = Vec::new();
    for input in inputs {
        packed.extend(u32::try_from(input.len()).expect("short").to_le_bytes());
        packed.extend(input);
    }
    packed
}

/// Unpacks inputs. `None` if the bytes are no corpus.
#[must_use]
pub fn unpack(mut packed: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut inputs = Vec::new();
    while !packed.is_empty() {
        let (length, rest) = packed.split_first_chunk()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (input, rest) = rest.split_at_checked(length)?;
        inputs.push(input.to_vec());
        packed = rest;
    }
    Some(inputs)
}

/// The committed corpus of a target.
///
/// # Errors
/// As reading the file; `InvalidData` if it is no corpus.
pub fn of(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let path = path(target);
    let about = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", path.display()));
    unpack(&fs::read(&path).map_err(about)?)
        .ok_or_else(|| about(io::Error::new(io::ErrorKind::InvalidData, "not a corpus")))
}
