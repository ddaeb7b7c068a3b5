//! The signal frame that the kernel writes, and copies of it.
//!
//! ```text
//! struct rt_sigframe { siginfo_t info; struct ucontext uc; }
//!   uc.uc_mcontext: general registers, then records {magic, size, ...} of FP, SVE, other state
//! ```
//! A record of type `EXTRA` continues the list behind its terminator, in memory that follows
//! directly. A copy is as long as the records in use; rt_sigreturn(2) reads no more than these.
//!
//! Sources: Linux, arch/arm64/include/uapi/asm/sigcontext.h and arch/arm64/kernel/signal.c
//! (`parse_user_sigframe`, `setup_sigframe_layout`).

use libc::ucontext_t;

use crate::glibc::refusal::Refusal;

/// Bytes of `info`, before the context.
pub(super) const INFO: usize = 128;
/// Offsets in the context.
pub(super) const STACK: usize = 16;
pub(super) const MASK: usize = 40;
/// The first record, after signal mask and general registers.
const RECORDS: usize = 464;
/// Bytes that the kernel reserves for records in the context itself.
const ROOM: usize = 4096;
/// Bytes of a record's head, and of a list's terminator with its padding.
const HEAD: usize = 16;

const FPSIMD: u32 = 0x4650_8001;
const SVE: u32 = 0x5356_4501;
const EXTRA: u32 = 0x4558_5401;
const ZA: u32 = 0x5436_6345;
const GCS: u32 = 0x4743_5300;

/// `SVE_SIG_FLAG_SM`: the record has the state of streaming mode.
const STREAMING: u16 = 1;

/// The smallest frame: general registers and the record of FP state.
pub(super) const SMALLEST: usize = INFO + RECORDS + 528 + HEAD;

/// Returns the size of a frame with SVE state for vectors of `vector` bytes: 32 vector registers,
/// and 16 predicates and FFR of an eighth of that.
pub(super) const fn largest(vector: usize) -> usize {
    if vector == 0 {
        return SMALLEST;
    }
    let registers = (32 * vector + 17 * vector.div_ceil(8)).next_multiple_of(16);
    // With the record of FAR, and the head of a continuation with its terminator.
    SMALLEST + HEAD + registers + 16 + 48
}

/// What a walk over the records finds. Offsets are from the context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// The end of the used records.
    pub end: usize,
    /// The word FPCR of the FP record.
    fpcr: usize,
    /// The word of the `EXTRA` record that holds the address of what follows.
    extra: Option<usize>,
}

/// Walks over the records of `context`.
///
/// # Errors
/// The state that an injected call cannot preserve, or a frame of unknown form.
///
/// # Safety
/// `context` is the context of a running signal handler, or a copy by [`copy`].
pub(super) unsafe fn walk(context: *const ucontext_t) -> Result<Found, Refusal> {
    let base = context.cast::<u8>();
    // SAFETY: the kernel wrote the records, each with its size, and a terminator behind the last.
    // Offsets below `limit` lie in the frame.
    let word = |at: usize| unsafe { base.add(at).cast::<u32>().read_unaligned() };
    let (mut at, mut limit) = (RECORDS, RECORDS + ROOM);
    let (mut fpcr, mut extra) = (None, None);
    loop {
        if at + HEAD > limit {
            return Err(Refusal::UnknownFrame);
        }
        let (magic, size) = (word(at), word(at + 4) as usize);
        if magic == 0 && size == 0 {
            break;
        }
        if size < HEAD || !size.is_multiple_of(16) || at + size > limit {
            return Err(Refusal::UnknownFrame);
        }
        match magic {
            FPSIMD => fpcr = Some(at + 12),
            // The record of a thread that uses no SVE ends after its head.
            SVE if word(at + 8) >> 16 & u32::from(STREAMING) != 0 => {
                return Err(Refusal::Streaming);
            }
            ZA if size > HEAD => return Err(Refusal::Streaming),
            GCS if word(at + 16) != 0 => return Err(Refusal::ShadowStack),
            EXTRA if extra.is_none() => {
                let bytes = word(at + 16) as usize;
                extra = Some(at + 8);
                at += size + HEAD;
                limit = at + bytes;
                continue;
            }
            _ => {}
        }
        at += size;
    }
    let fpcr = fpcr.ok_or(Refusal::UnknownFrame)?;
    Ok(Found { end: at + HEAD, fpcr, extra })
}

impl Found {
    /// Returns the bytes of a copy of the whole frame, a multiple of 16.
    pub(super) fn bytes(&self) -> usize {
        INFO + self.end
    }

    /// Sets FPCR, which takes effect when the handler of `context` returns.
    ///
    /// # Safety
    /// `self` is the result of [`walk`] for this context.
    pub(super) unsafe fn set_fpcr(&self, context: *mut ucontext_t, value: u32) {
        // SAFETY: the offset is that of the word.
        unsafe { context.byte_add(self.fpcr).cast::<u32>().write(value) };
    }

    /// Copies the frame to `frame`, for rt_sigreturn(2). The signal's information is zero there.
    ///
    /// # Safety
    /// `self` is the result of [`walk`] for `context`; [`Found::bytes`] bytes at `frame`,
    /// 16-aligned, are writable and do not overlap the frame of `context`.
    pub(super) unsafe fn copy(&self, context: *const ucontext_t, frame: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe {
            frame.write_bytes(0, INFO);
            let to = frame.add(INFO);
            to.copy_from_nonoverlapping(context.cast(), self.end);
            if let Some(extra) = self.extra {
                // The continuation lies at the same distance as in the original.
                let there = to.add(extra).cast::<u64>();
                let distance = there.read().wrapping_sub(context.addr() as u64);
                there.write((to.addr() as u64).wrapping_add(distance));
            }
        }
    }
}

#[cfg(test)]
mod tests;
