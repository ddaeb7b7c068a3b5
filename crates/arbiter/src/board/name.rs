//! Name of an address space, as stored in the file.

use std::sync::atomic::{AtomicU64, Ordering};

const NAME: usize = 32;

/// Name of a program, in UTF-8, padded with zeroes.
#[repr(C)]
pub(crate) struct Name([AtomicU64; NAME / 8]);

impl Name {
    pub(crate) fn set(&self, name: &str) {
        let mut bytes = [0; NAME];
        let mut end = name.len().min(NAME);
        while !name.is_char_boundary(end) {
            end -= 1;
        }
        bytes[..end].copy_from_slice(&name.as_bytes()[..end]);
        for (word, bytes) in self.0.iter().zip(bytes.as_chunks().0) {
            word.store(u64::from_le_bytes(*bytes), Ordering::Relaxed);
        }
    }

    /// Returns the stored name in printable form, whatever bytes the file contains.
    pub(crate) fn get(&self) -> String {
        let bytes: Vec<u8> =
            self.0.iter().flat_map(|word| word.load(Ordering::Relaxed).to_le_bytes()).collect();
        let end = bytes.iter().position(|&b| b == 0).unwrap_or(NAME);
        String::from_utf8_lossy(&bytes[..end])
            .chars()
            .map(|c| if c.is_control() { '?' } else { c })
            .collect()
    }
}
