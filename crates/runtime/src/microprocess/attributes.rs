//! The attributes of a microprocess that the kernel keeps per kernel thread.
//!
//! The values are in the record. Each change gives them a new *version*, a number that is never
//! used again, so that equal versions mean equal values. A switch compares the version of the next
//! microprocess with the one that its kernel thread has, and makes system calls only if they differ
//! ([`crate::kernel_thread::attributes`]). A microprocess that never changed anything, and whose
//! ancestors did not, has version 0.

use std::cell::Cell;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use kumihimo_arch::{kernel_attributes, signal_mask};

use crate::microprocess::cpu_clock::CpuClock;

/// The version of a microprocess that has the usual attributes.
pub(crate) const USUAL: u64 = 0;
/// A version that no microprocess has: the kernel thread's signal mask is not known.
pub(crate) const UNKNOWN: u64 = u64::MAX;

/// Values of the attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    /// Blocked signals; bit `n - 1` is signal `n`.
    pub(crate) signal_mask: u64,
    pub(crate) nice: i32,
    /// In nanoseconds. The usual value stands for whatever the runtime's kernel threads have.
    pub(crate) timer_slack: u64,
    pub(crate) signal_stack: Option<SignalStack>,
    /// Whether its CPU time is counted, because it has read its CPU clock.
    pub(crate) has_cpu_clock: bool,
}

/// An alternate signal stack that a microprocess has installed; sigaltstack(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignalStack {
    pub(crate) address: usize,
    pub(crate) bytes: usize,
    pub(crate) flags: i32,
}

impl SignalStack {
    pub(crate) fn of(stack: libc::stack_t) -> SignalStack {
        SignalStack { address: stack.ss_sp.addr(), bytes: stack.ss_size, flags: stack.ss_flags }
    }

    /// As sigaltstack(2) reports it to code whose stack pointer is `stack_pointer`.
    pub(crate) fn as_seen_from(self, stack_pointer: usize) -> libc::stack_t {
        let is_in_use = stack_pointer.wrapping_sub(self.address) < self.bytes;
        let flags = self.flags | if is_in_use { libc::SS_ONSTACK } else { 0 };
        libc::stack_t { ss_flags: flags, ..self.to_kernel() }
    }

    pub(crate) fn to_kernel(self) -> libc::stack_t {
        libc::stack_t {
            ss_sp: std::ptr::with_exposed_provenance_mut(self.address),
            ss_flags: self.flags,
            ss_size: self.bytes,
        }
    }
}

impl Attributes {
    /// Those of the calling kernel thread, as far as a new thread inherits them.
    pub(crate) fn of_this_kernel_thread() -> Attributes {
        Attributes {
            signal_mask: signal_mask::current(),
            nice: kernel_attributes::nice(),
            timer_slack: kernel_attributes::timer_slack(),
            signal_stack: None,
            has_cpu_clock: false,
        }
    }

    /// What a child of a microprocess with these attributes begins with; pthread_create(3),
    /// sigaltstack(2).
    pub(crate) fn inherited(self) -> Attributes {
        Attributes { signal_stack: None, has_cpu_clock: false, ..self }
    }
}

/// The name of the kernel thread that started the first runtime: usually the program's. A new
/// thread without a name has its creator's (pthread_setname_np(3)).
pub(crate) static NAME_OF_START: OnceLock<[u8; 16]> = OnceLock::new();

/// The attributes of the kernel thread that started the first runtime of the process.
static OF_START: OnceLock<Attributes> = OnceLock::new();

/// Returns the usual attributes: those of the kernel thread that first called this.
pub(crate) fn usual() -> Attributes {
    *OF_START.get_or_init(|| {
        let _ = NAME_OF_START.set(kernel_attributes::name());
        Attributes::of_this_kernel_thread()
    })
}

/// Returns a version that was never used.
pub(crate) fn new_version() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The attributes in a microprocess's record. Only the holder of the microprocess accesses them.
#[derive(Debug)]
pub(crate) struct OwnAttributes {
    /// Meaningless while the version is [`USUAL`].
    pub(crate) values: Cell<Attributes>,
    pub(crate) cpu_clock: CpuClock,
}

impl OwnAttributes {
    pub(crate) fn new() -> OwnAttributes {
        let nothing = Attributes {
            signal_mask: 0,
            nice: 0,
            timer_slack: 0,
            signal_stack: None,
            has_cpu_clock: false,
        };
        OwnAttributes { values: Cell::new(nothing), cpu_clock: CpuClock::new() }
    }
}
