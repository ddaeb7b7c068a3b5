//! A checked-in BPF program, and the symbols that the loader puts in.

/// A checked-in program (`object.rs`, generated).
pub(super) struct Program {
    /// The name under which the kernel knows it: it tells versions apart.
    pub(super) name: &'static str,
    /// Instructions that load or call what only the loader knows, and what that is.
    pub(super) symbols: &'static [(usize, &'static str)],
    /// One word an instruction; the second word of a 64-bit load stands alone.
    pub(super) instructions: &'static [u64],
}

/// What a symbol stands for.
#[derive(Clone, Copy)]
pub(super) enum Symbol {
    Value(u32),
    /// By its descriptor.
    Map(u32),
    /// Of the kernel, by the id of its type.
    Function(u32),
    /// Of the program itself: its first instruction.
    Own(u32),
}

impl Program {
    /// The instructions with symbols put in.
    pub(super) fn with(&self, find: impl Fn(&str) -> Symbol) -> Vec<u64> {
        let mut instructions = self.instructions.to_vec();
        for &(at, symbol) in self.symbols {
            // opcode u8, destination and source a nibble each, offset u16, immediate u32. The
            // source says what the immediate is: BPF_PSEUDO_MAP_FD, BPF_PSEUDO_KFUNC_CALL,
            // BPF_PSEUDO_FUNC (from the next instruction on).
            let (value, source) = match find(symbol) {
                Symbol::Value(value) => (value, 0),
                Symbol::Map(descriptor) => (descriptor, 1),
                Symbol::Function(id) => (id, 2),
                Symbol::Own(first) => (first.wrapping_sub(at as u32 + 1), 4),
            };
            instructions[at] =
                instructions[at] & 0xffff_0fff | u64::from(value) << 32 | source << 12;
        }
        instructions
    }
}
