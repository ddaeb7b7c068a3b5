//! Constants that the BPF programs and their user agree on.

/// Bytes of a slot.
pub const SLOT_SIZE: usize = 256;
/// `si_perf_data` of our SIGTRAPs (`si_code` is TRAP_PERF, 6), or `si_value` (SI_KERNEL, 128),
/// which is in the same place: any other SIGTRAP is not ours.
pub const SIG_DATA: u64 = 0x4b55_4d49_5452_4150;
/// The most slots one process can have.
pub const MOST_SLOTS: u32 = kumihimo_config::MAX_KERNEL_THREADS as u32;
