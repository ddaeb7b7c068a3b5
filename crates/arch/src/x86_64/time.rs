//! The processor's time-stamp counter, for code that notes the time too often for a call of the
//! vDSO.

use core::arch::x86_64::__rdtscp;

use super::cpu::cpuid;

/// Whether [`counter`] may be used: it is there, it ticks at one rate whatever the processor does,
/// and the kernel trusts it (it is the kernel's own clock), which it does only where the counters
/// of all processors agree.
///
/// Reads sysfs: ask once.
#[must_use]
pub fn has_steady_counter() -> bool {
    const RDTSCP: u32 = 1 << 27;
    const INVARIANT: u32 = 1 << 8;
    let leaf = |leaf| cpuid(leaf, 0);
    let clock =
        std::fs::read_to_string("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    leaf(0x8000_0000).eax >= 0x8000_0007
        && leaf(0x8000_0001).edx & RDTSCP != 0
        && leaf(0x8000_0007).edx & INVARIANT != 0
        && clock.is_ok_and(|name| name.trim() == "tsc")
}

/// Ticks since the machine's start, about. Read after every load before it in program order is done
/// (Intel SDM, RDTSCP), so that a processor that saw what another one stored never reads less than
/// that one did before its store.
///
/// Only where [`has_steady_counter`] said yes: elsewhere it may fault.
#[inline(always)]
#[must_use]
pub fn counter() -> u64 {
    let mut processor = 0;
    // SAFETY: x86_64; the instruction is there (the documented precondition), and writes to the
    // live local.
    unsafe { __rdtscp(&mut processor) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_goes_back() {
        if !has_steady_counter() {
            return;
        }
        let mut last = counter();
        for _ in 0..10_000 {
            let now = counter();
            assert!(now >= last);
            last = now;
        }
    }
}
