//! Contents of a file in pages. A missing page is all zeros, so a sparse file may be larger than
//! the memory.

use std::collections::BTreeMap;

const PAGE: u64 = 1024;

/// Contents of a file.
#[derive(Clone, Debug, Default)]
pub struct Contents {
    size: u64,
    pages: BTreeMap<u64, Box<[u8]>>,
}

/// Splits a range into parts within one page: page number, offset in the page, offset in the range,
/// length.
fn parts(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == length {
            return None;
        }
        let at = offset + done;
        let here = (PAGE - at % PAGE).min(length - done);
        let part = (at / PAGE, small(at % PAGE), small(done), small(here));
        done += here;
        Some(part)
    })
}

fn small(number: u64) -> usize {
    usize::try_from(number).expect("64-bit machine")
}

impl Contents {
    /// Size in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Truncates or extends the contents.
    pub fn resize(&mut self, size: u64) {
        if size < self.size {
            self.clear(size, self.size - size);
        }
        self.size = size;
    }

    /// Reads at `offset`, up to the end of the file. Returns the number of bytes.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> usize {
        let length = (into.len() as u64).min(self.size.saturating_sub(offset));
        for (page, inside, outside, here) in parts(offset, length) {
            let into = &mut into[outside..outside + here];
            match self.pages.get(&page) {
                Some(bytes) => into.copy_from_slice(&bytes[inside..inside + here]),
                None => into.fill(0),
            }
        }
        small(length)
    }

    /// Writes all bytes of `from`.
    pub fn write(&mut self, offset: u64, from: &[u8]) {
        for (page, inside, outside, here) in parts(offset, from.len() as u64) {
            let bytes =
                self.pages.entry(page).or_insert_with(|| vec![0; small(PAGE)].into_boxed_slice());
            bytes[inside..inside + here].copy_from_slice(&from[outside..outside + here]);
        }
        self.size = self.size.max(offset + from.len() as u64);
    }

    /// Fills a range with zeros. The size does not change.
    pub fn clear(&mut self, offset: u64, length: u64) {
        let end = offset + length;
        // Whole pages are removed by a range query: a range may span terabytes.
        let (first, last) = (offset.div_ceil(PAGE), end / PAGE);
        if first < last {
            let whole: Vec<u64> = self.pages.range(first..last).map(|(page, _)| *page).collect();
            for page in whole {
                self.pages.remove(&page);
            }
        }
        for page in [offset / PAGE, end / PAGE] {
            let (from, to) = (offset.max(page * PAGE), end.min((page + 1) * PAGE));
            if let Some(bytes) = self.pages.get_mut(&page)
                && from < to
            {
                bytes[small(from - page * PAGE)..small(to - page * PAGE)].fill(0);
            }
        }
    }

    /// Position of the first non-zero byte at or after `offset`.
    pub fn data(&self, offset: u64) -> Option<u64> {
        self.pages.range(offset / PAGE..).find_map(|(page, bytes)| {
            let from = offset.saturating_sub(page * PAGE);
            let at = bytes[small(from)..].iter().position(|byte| *byte != 0)?;
            Some(page * PAGE + from + at as u64)
        })
    }
}

#[cfg(test)]
mod tests;
