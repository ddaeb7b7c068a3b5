//! What a frame does when a panic passes it: the table of its function's exception handlers.

/// What a panic meets in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LandingPad {
    /// It passes.
    None,
    /// It passes after destructors.
    Cleanup,
    /// It is caught.
    Catch,
    /// The process ends: an `extern "C"` function of Rust, a `noexcept` function of C++.
    Terminate,
}

/// `DW_EH_PE_omit`.
const OMITTED: u8 = 0xff;

/// Returns what the table at `table`, of the function at `function`, says of the call at
/// `instruction`. A table with an encoding that neither LLVM nor GCC uses there counts as
/// [`LandingPad::None`].
///
/// # Safety
/// `table` is null, or points to such a table as the compiler wrote it.
pub(super) unsafe fn find(table: *const u8, function: usize, instruction: usize) -> LandingPad {
    if table.is_null() {
        return LandingPad::None;
    }
    let mut reader = Reader { at: table };
    // SAFETY: the caller's promise: the reader follows the table's own lengths.
    unsafe { reader.find(function, instruction) }.unwrap_or(LandingPad::None)
}

struct Reader {
    at: *const u8,
}

impl Reader {
    /// # Safety
    /// The reader is at the start of a table.
    unsafe fn find(&mut self, function: usize, instruction: usize) -> Option<LandingPad> {
        // SAFETY: in all calls: the table's own order of values.
        unsafe {
            if self.byte() != OMITTED {
                // Another base of the landing pads: only what is below needs it, and only as zero
                // or not zero.
                return None;
            }
            if self.byte() != OMITTED {
                self.unsigned();
            }
            let encoding = self.byte();
            let length = self.unsigned();
            let actions = self.at.wrapping_add(length);
            while self.at < actions {
                let start = function.wrapping_add(self.encoded(encoding)?);
                let size = self.encoded(encoding)?;
                let pad = self.encoded(encoding)?;
                let action = self.unsigned();
                // The entries are in the order of their addresses.
                if instruction < start {
                    break;
                }
                if instruction < start.wrapping_add(size) {
                    return Some(match (pad, action) {
                        (0, _) => LandingPad::None,
                        (_, 0) => LandingPad::Cleanup,
                        (_, action) => {
                            let mut action = Reader { at: actions.wrapping_add(action - 1) };
                            match action.signed() {
                                0 => LandingPad::Cleanup,
                                1.. => LandingPad::Catch,
                                // A filter: an empty list of what may pass.
                                _ => LandingPad::Terminate,
                            }
                        }
                    });
                }
            }
        }
        // A call without an entry must not unwind.
        Some(LandingPad::Terminate)
    }

    /// # Safety
    /// In all of these: a value of this kind is next in the table.
    unsafe fn byte(&mut self) -> u8 {
        // SAFETY: the caller's promise.
        let byte = unsafe { self.at.read() };
        self.at = self.at.wrapping_add(1);
        byte
    }

    /// LEB128 (DWARF 5, 7.6). Returns the bits, their number, and the last byte.
    unsafe fn bits(&mut self) -> (u64, u32, u8) {
        let (mut value, mut shift) = (0u64, 0u32);
        loop {
            // SAFETY: the caller's promise.
            let byte = unsafe { self.byte() };
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            shift += 7;
            if byte & 0x80 == 0 {
                return (value, shift, byte);
            }
        }
    }

    unsafe fn unsigned(&mut self) -> usize {
        // SAFETY: the caller's promise.
        unsafe { self.bits() }.0 as usize
    }

    unsafe fn signed(&mut self) -> i64 {
        // SAFETY: the caller's promise.
        let (value, shift, last) = unsafe { self.bits() };
        let is_negative = last & 0x40 != 0 && shift < 64;
        (if is_negative { value | u64::MAX << shift } else { value }) as i64
    }

    /// A value in one of the encodings of a table of calls: `DW_EH_PE_absptr`, `uleb128`, `udata2`,
    /// `udata4`, `udata8`.
    unsafe fn encoded(&mut self, encoding: u8) -> Option<usize> {
        let bytes = match encoding {
            // SAFETY: the caller's promise.
            0x01 => return Some(unsafe { self.unsigned() }),
            0x00 | 0x04 => 8,
            0x02 => 2,
            0x03 => 4,
            _ => return None,
        };
        let mut value = [0u8; 8];
        for byte in &mut value[..bytes] {
            // SAFETY: the caller's promise.
            *byte = unsafe { self.byte() };
        }
        Some(u64::from_le_bytes(value) as usize)
    }
}

#[cfg(test)]
mod tests;
