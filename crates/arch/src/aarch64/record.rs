//! The word that holds the address of the present kernel thread's record.
//!
//! AArch64 has no second base register for user space, as GS is on x86_64. The word is a
//! thread-local variable of the initial-exec model, hence at a fixed offset from the thread pointer
//! in every TLS block:
//!
//! - A foreign thread has 0 there.
//! - A kernel thread of the pool stores the address in its own block.
//! - A switch to another block stores the address of the kernel thread that performs it, before the
//!   thread pointer changes ([`cpu::switch_fs`](super::cpu::switch_fs)). So a signal handler finds
//!   the right address in between any two instructions.
//!
//! # Indivisible sequences
//! An access to a field takes several instructions: one reads the word, another the field. If a
//! call was injected in between and returned on another kernel thread, the code would go on with
//! the record of the previous one. The sequences are therefore functions in a section of their own,
//! into which no call is injected ([`is_indivisible`]). The runtime's doorbell rings again a little
//! later. A handler that interrupts a sequence leaves the fields as it found them.
//!
//! The functions have no stack frame and their own convention: the offset in x9, the result in x9,
//! and x10, x16, x17 and x30 are lost.

use core::arch::global_asm;
use core::ffi::c_void;

global_asm!(
    ".pushsection .tbss.kumihimo_record, \"awT\", %nobits",
    ".p2align 3",
    ".globl kumihimo_record",
    ".hidden kumihimo_record",
    ".type kumihimo_record, %object",
    ".size kumihimo_record, 8",
    "kumihimo_record:",
    ".zero 8",
    ".popsection",
);

/// Loads the address of the calling kernel thread's record into x10. x16 becomes the offset of the
/// word.
macro_rules! record_to_x10 {
    () => {
        "mrs x10, tpidr_el0\n\
         adrp x16, :gottprel:kumihimo_record\n\
         ldr x16, [x16, :gottprel_lo12:kumihimo_record]\n\
         ldr x10, [x10, x16]\n"
    };
}

/// A function of the section: its name, and the instructions after `record_to_x10`.
macro_rules! sequence {
    ($name:literal, $body:literal) => {
        concat!(
            ".p2align 4\n.globl ",
            $name,
            "\n.hidden ",
            $name,
            "\n.type ",
            $name,
            ", %function\n",
            $name,
            ":\n.cfi_startproc\nhint #34\n",
            record_to_x10!(),
            $body,
            "ret\n.cfi_endproc\n.size ",
            $name,
            ", . - ",
            $name,
            "\n",
        )
    };
}

global_asm!(
    ".pushsection .text.kumihimo_record, \"ax\", %progbits",
    ".p2align 4",
    ".globl kumihimo_record_begin",
    ".hidden kumihimo_record_begin",
    "kumihimo_record_begin:",
    sequence!("kumihimo_record_load64", "ldr x9, [x10, x9]\n"),
    sequence!("kumihimo_record_load32", "ldr w9, [x10, x9]\n"),
    sequence!(
        "kumihimo_record_add32",
        // x17: what is added.
        "ldr w16, [x10, x9]\nadd w16, w16, w17\nstr w16, [x10, x9]\nmov w9, w16\n"
    ),
    ".globl kumihimo_record_end",
    ".hidden kumihimo_record_end",
    "kumihimo_record_end:",
    ".popsection",
);

unsafe extern "C" {
    static kumihimo_record_begin: c_void;
    static kumihimo_record_end: c_void;
}

/// Whether the instruction at `pc` belongs to an indivisible sequence. Async-signal-safe.
#[must_use]
pub fn is_indivisible(pc: usize) -> bool {
    (&raw const kumihimo_record_begin).addr() <= pc && pc < (&raw const kumihimo_record_end).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aarch64::cpu;

    /// The words of the section, from `begin` to `end`.
    fn instructions() -> Vec<(usize, u32)> {
        let begin = (&raw const kumihimo_record_begin).addr();
        let end = (&raw const kumihimo_record_end).addr();
        // SAFETY: code of this program, which is readable.
        let word = |at: usize| unsafe { std::ptr::with_exposed_provenance::<u32>(at).read() };
        (begin..end).step_by(4).map(|at| (at, word(at))).collect()
    }

    /// A handler that interrupts the sequence anywhere must be refused. Only the call before it and
    /// the instruction after its return are open.
    #[test]
    fn every_instruction_of_each_sequence_is_closed() {
        const RET: u32 = 0xd65f_03c0;
        let all = instructions();
        assert_eq!(all.iter().filter(|(_, word)| *word == RET).count(), 3, "three sequences");
        for (at, word) in &all {
            assert!(is_indivisible(*at), "{word:08x} at {at:x}");
            assert!(crate::regions::is_closed(*at), "{word:08x} at {at:x}");
        }
        let (first, last) = (all[0].0, all[all.len() - 1].0);
        assert!(!is_indivisible(first - 4) && !is_indivisible(last + 4));
        assert!(!is_indivisible(cpu::fs_base as *const () as usize));
    }

    /// No sequence leaves the section before its return, which would make part of it open.
    #[test]
    fn sequences_contain_no_branch() {
        for (at, word) in instructions() {
            let is_branch = word & 0x7c00_0000 == 0x1400_0000 // b, bl
                || word & 0xff00_0010 == 0x5400_0000 // b.cond
                || word & 0x7e00_0000 == 0x3400_0000 // cbz, cbnz
                || word & 0x7e00_0000 == 0x3600_0000; // tbz, tbnz
            assert!(!is_branch, "{word:08x} at {at:x}");
        }
    }
}
