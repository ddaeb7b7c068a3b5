//! The rules by which frames of this architecture are unwound.
//!
//! Registers are created by `Registers::new`, with PC, SP and the frame pointer (x86_64), or the
//! link register, SP and the frame pointer (AArch64). A walk begins with PC for the first of these.
//! On AArch64 that is wrong only for a function that has not saved its link register when it is
//! interrupted: its caller is then missing in the trace.

#[cfg(target_arch = "aarch64")]
pub(crate) use framehop::aarch64::{
    CacheAarch64 as Cache, UnwindRegsAarch64 as Registers, UnwinderAarch64 as Rules,
};
#[cfg(not(target_arch = "aarch64"))]
pub(crate) use framehop::x86_64::{
    CacheX86_64 as Cache, UnwindRegsX86_64 as Registers, UnwinderX86_64 as Rules,
};

/// Whether stacks can be walked. On other architectures every trace is empty and cut.
pub(crate) const IS_AVAILABLE: bool = cfg!(target_arch = "aarch64") || cfg!(target_arch = "x86_64");
