//! Why a call is not injected.

use std::fmt;

/// Reasons why a call is not injected. The context is then unchanged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Refusal {
    /// [`prepare`](crate::inject::prepare) was not called.
    NotPrepared,
    /// The interrupted stack pointer lies below the given stack.
    NotOnThisStack,
    /// Too few bytes between the stack's lowest address and the interrupted stack pointer: see
    /// [`room_needed`](crate::inject::room_needed).
    NotEnoughRoom,
    /// The interrupted stack pointer is not a multiple of 8 (x86_64), or of 16 (aarch64).
    Misaligned,
    /// The handler runs on the interrupted stack, where the frame would be written. It needs
    /// `SA_ONSTACK` and an alternate stack.
    HandlerOnThisStack,
    /// The interrupted code is the trampoline of an earlier injected call.
    InTrampoline,
    /// The interrupted code uses AMX tiles, which the trampoline does not save. On x86_64.
    Tiles,
    /// The interrupted code is in SME's streaming mode, or has state in ZA. On aarch64.
    Streaming,
    /// This thread has a shadow stack (CET), or a guarded control stack (GCS), on which the
    /// injected return is missing.
    ShadowStack,
    /// The records of the signal frame have an unknown form. On aarch64.
    UnknownFrame,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Refusal::NotPrepared => "no call injected: inject::prepare() was not called",
            Refusal::NotOnThisStack => {
                "no call injected: the interrupted code is not on the given stack"
            }
            Refusal::NotEnoughRoom => {
                "no call injected: the interrupted stack has too little room; make it larger"
            }
            Refusal::Misaligned => "no call injected: the interrupted stack pointer is misaligned",
            Refusal::HandlerOnThisStack => {
                "no call injected: the handler runs on the interrupted stack; set SA_ONSTACK"
            }
            Refusal::InTrampoline => {
                "no call injected: the interrupted code is the trampoline of another call"
            }
            Refusal::Tiles => {
                "no call injected: the interrupted code uses AMX tiles, which are not saved"
            }
            Refusal::Streaming => {
                "no call injected: the interrupted code uses SME state, which is not saved"
            }
            Refusal::ShadowStack => {
                "no call injected: this thread has a shadow stack; start the program without one"
            }
            Refusal::UnknownFrame => {
                "no call injected: the kernel's signal frame has an unknown form"
            }
        })
    }
}

impl std::error::Error for Refusal {}
